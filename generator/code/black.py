"""Formats Python with black, and remembers its results: in the process, and wherever a command keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from generator.code.traced import Traced, line_starts
from generator.errors import LoomError

LINE_LENGTH = 120


class Memory(Protocol):
    """Keeps results from one process to the next."""

    def recall(self, text: str) -> str | None: ...

    def remember(self, text: str, formatted: str) -> None: ...


memory: Memory | None = None  # weaving alone reads and writes nothing; commands set it
_remembered: dict[str, str] = {}  # text -> the text that black makes of it


def run_black(sources: Sequence[Traced]) -> list[str]:
    """Returns each text as black formats it."""
    for source in sources:
        if source.text not in _remembered:
            _remembered[source.text] = _recall(source)
    return [_remembered[source.text] for source in sources]


def _recall(source: Traced) -> str:
    formatted = memory.recall(source.text) if memory else None
    if formatted is None:
        formatted = _format(source)
        if memory:
            memory.remember(source.text, formatted)
    return formatted


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
