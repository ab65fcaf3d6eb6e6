"""Reads source files: regular files of UTF-8 text."""

from __future__ import annotations

import codecs
from pathlib import Path

from generator.errors import LoomError

MAX_BYTES = 20_000_000  # more than any source has


def read_text(path: Path, where: str, remedy: str = "Make it a file of UTF-8 text that you may read.") -> str:
    """Returns the text of a file, with its own line ends.

    Args:
        where: the file as messages name it.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device may never end
            raise LoomError("is not a regular file", where, "Put a file in its place.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise LoomError(f"cannot be read: {error.strerror}", where, remedy) from None
    if len(data) > MAX_BYTES:
        raise LoomError(f"has more than {MAX_BYTES:,} bytes", where, "Give a shorter file.")
    if data.startswith(codecs.BOM_UTF8):
        raise LoomError("begins with a byte order mark", where, "Save it as UTF-8 without one.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LoomError("is not UTF-8 text", f"{where}:{line}", remedy) from None
