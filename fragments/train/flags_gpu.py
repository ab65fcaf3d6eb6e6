"""XLA's flags for GPUs, and its share of their memory."""

import os

from generator.language import setting, splice

FLAGS = setting("xla_flags")
FLAGS_VARIABLE = "XLA_FLAGS"


@splice("set_flags.more")
def _():
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", setting("memory_fraction"))  # preallocated
