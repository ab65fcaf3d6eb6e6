"""Reads a TOML file, with errors that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from generator.errors import LoomError, nearest
from generator.files import read_text
from generator.tomltext import parse_toml


def read_toml(path: Path, shown: str) -> dict:
    """The tables of a TOML file.

    Args:
        path: the file.
        shown: how messages name it.

    Raises:
        LoomError: the file cannot be read, is not UTF-8, or is not TOML; then the line is named.
    """
    return parse_toml(read_text(path, shown), shown)


def check_keys(table: dict, known: Iterable[str], shown: str) -> None:
    """Refuses the first key that is not known.

    Raises:
        LoomError: it names the key and the nearest known ones.
    """
    for key in table:
        if key not in known:
            raise LoomError(f"unknown key {key!r}", shown, nearest(key, known))
