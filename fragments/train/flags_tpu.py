"""Flags of libtpu."""

import os

from generator.language import setting, splice


def set_flags() -> None:
    """Sets libtpu's flags if none are set; libtpu reads them when JAX first asks for its devices."""
    os.environ.setdefault("LIBTPU_INIT_ARGS", setting("libtpu_flags"))


@splice("command.start")
def _():
    set_flags()
