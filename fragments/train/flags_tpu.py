"""Flags of libtpu."""

import os

from generator.language import requires, setting

requires("hardware")  # which sets them

FLAGS = setting("libtpu_flags")
FLAGS_VARIABLE = "LIBTPU_INIT_ARGS"


def set_flags(flags: str) -> None:
    """Sets libtpu's flags if none are set; libtpu reads them when JAX first asks for its devices."""
    os.environ.setdefault(FLAGS_VARIABLE, flags)
