"""Line differences of two texts."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import NamedTuple


class ChangedRange(NamedTuple):
    """Lines that were replaced; line numbers count from 0, and either side may be empty."""

    before: range
    after: range


def hunks(before: list[str], after: list[str]) -> list[ChangedRange]:
    """Returns the differences from one list of lines to another, in order."""
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return [
        ChangedRange(range(low, high), range(start, end))
        for kind, low, high, start, end in matcher.get_opcodes()
        if kind != "equal"
    ]
