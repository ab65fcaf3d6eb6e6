"""Reads source files: regular ones, of UTF-8."""

from __future__ import annotations

import codecs
from pathlib import Path

from generator.errors import LoomError

MOST_BYTES = 20_000_000  # more than any source has


def read_text(path: Path, shown: str, remedy: str = "Make it a file of UTF-8 text that you may read.") -> str:
    """Returns the text of a file, with the line ends that it has.

    Args:
        shown: how messages name it.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device may never end
            raise LoomError("is not a regular file", shown, "Put a file in its place.")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise LoomError(f"cannot be read: {error.strerror}", shown, remedy) from None
    if len(data) > MOST_BYTES:
        raise LoomError(f"has more than {MOST_BYTES:,} bytes", shown, "Give a shorter file.")
    if data.startswith(codecs.BOM_UTF8):
        raise LoomError("begins with a byte order mark", shown, "Save it as UTF-8 without one.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LoomError("is not UTF-8 text", f"{shown}:{line}", remedy) from None
