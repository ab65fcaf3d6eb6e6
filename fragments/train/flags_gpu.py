"""XLA's flags for GPUs, and its share of their memory."""

import os

from generator.language import setting, splice

XLA_FLAGS = setting("xla_flags")


@splice("command.start")
def _():
    # XLA reads its flags when it first sees devices; those of the environment come last, so they win
    os.environ["XLA_FLAGS"] = " ".join([*XLA_FLAGS, os.environ.get("XLA_FLAGS", "")])
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", setting("memory_fraction"))  # preallocated
