"""Flags of XLA on GPUs, and its share of their memory."""

import os

from generator.marks import setting, splice

XLA_FLAGS = setting("xla_flags")
MEMORY_FRACTION = setting("memory_fraction")  # of each GPU, taken at the start


def set_flags() -> None:
    """Sets XLA's flags, before those of the environment, which win; XLA reads them when it first sees its devices."""
    os.environ["XLA_FLAGS"] = " ".join([*XLA_FLAGS, os.environ.get("XLA_FLAGS", "")])
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", MEMORY_FRACTION)


@splice("command.start")
def _():
    set_flags()
