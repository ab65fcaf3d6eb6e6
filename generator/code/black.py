"""Formats Python with black, and remembers its results: in the process, and in the user's cache folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from generator.code.traced import Traced, line_starts
from generator.disk.cache import cache_key, load, store
from generator.errors import LoomError

LINE_LENGTH = 120
_remembered: dict[str, str] = {}  # text -> the text that black makes of it


def run_black(sources: Sequence[Traced]) -> list[str]:
    """Returns each text as black formats it."""
    for source in sources:
        if source.text not in _remembered:
            _remembered[source.text] = _recall(source)
    return [_remembered[source.text] for source in sources]


def _recall(source: Traced) -> str:
    """Returns a text as black formats it, from the cache folder if it is there.

    An entry ends with the digest of its key and text: one that is damaged, or of another text, is made anew.
    """
    key = cache_key(_version(), LINE_LENGTH, source.text)
    match load("black", key):
        case [str(text), str(digest)] if digest == cache_key(key, text):
            return text
    text = _format(source)
    store("black", key, [text, cache_key(key, text)])
    return text


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("black")


@cache
def _mode() -> Any:
    from black import Mode, TargetVersion  # takes 0.2 s to import

    return Mode(line_length=LINE_LENGTH, target_versions={TargetVersion.PY311})


def _format(source: Traced) -> str:
    from black import format_str

    if not source.text.strip():
        return ""
    try:
        return format_str(source.text, mode=_mode())
    except ValueError as error:  # black.InvalidInput, with a place or without
        raise _format_error(source, error) from None


def _format_error(source: Traced, error: Any) -> LoomError:
    """Returns the error for a text that black cannot parse, with the line of its source."""
    lines = source.text.rstrip().split("\n")
    blank = next(row for row, line in enumerate(lines) if line.strip())  # black does not count them
    row = min(blank + getattr(error, "lineno", 1) - 1, len(lines) - 1)  # an unexpected end is after the last line
    message = f"black cannot parse {lines[row].strip()!r}"
    return LoomError(
        message, str(source.origin_at(line_starts(source.text)[row])), "Fix this line, or what is woven into it."
    )
