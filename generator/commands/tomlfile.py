"""Reads a TOML file, with errors that a person can act on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from generator.errors import LoomError, nearest


def read_toml(path: Path, shown: str) -> dict:
    """The tables of a TOML file.

    Args:
        path: the file.
        shown: how messages name it.

    Raises:
        LoomError: the file cannot be read, is not UTF-8, or is not TOML; the line is named where it is known.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise LoomError(f"cannot be read: {error.strerror}", shown, "Make it a file that you may read.") from None
    except UnicodeDecodeError:
        raise LoomError("is not UTF-8 text", shown, "Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = found[1] if found else len(path.read_bytes().splitlines())  # else it says "at end of document"
        where = f"{shown}:{line}"
        raise LoomError(f"is not TOML: {error}", where, "Correct this line.") from None


def check_keys(table: dict, known: Iterable[str], shown: str) -> None:
    """Refuses the first key that is not known.

    Raises:
        LoomError: it names the key and the nearest known ones.
    """
    for key in table:
        if key not in known:
            raise LoomError(f"unknown key {key!r}", shown, nearest(key, known))
