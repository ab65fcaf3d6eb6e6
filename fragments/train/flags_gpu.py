"""XLA's flags for GPUs, and its share of their memory."""

import os

from generator.language import requires, setting

requires("hardware")  # which sets them

FLAGS = setting("xla_flags")
FLAGS_VARIABLE = "XLA_FLAGS"


def set_flags(flags: str) -> None:
    """Sets XLA's flags, which it reads when it first sees devices; those of the environment come last, so they win."""
    os.environ[FLAGS_VARIABLE] = f"{flags} {os.environ.get(FLAGS_VARIABLE, '')}"
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", setting("memory_fraction"))  # preallocated
