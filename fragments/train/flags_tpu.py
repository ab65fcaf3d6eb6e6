"""Flags of libtpu."""

import os

from generator.marks import setting, splice

LIBTPU_FLAGS = setting("libtpu_flags")


def set_flags() -> None:
    """Sets libtpu's flags where none are set; libtpu reads them when JAX first asks for its devices."""
    os.environ.setdefault("LIBTPU_INIT_ARGS", LIBTPU_FLAGS)


@splice("command.start")
def _():
    set_flags()
