"""What a user of gen can meet: one exception, always with a place, a reason and a remedy.

Any function of the generator may raise it, for what a user has written; docstrings name only other exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class LoomError(Exception):
    """A mistake in a fragment, an architecture, a target or a command line.

    Args:
        message: what is wrong.
        where: `path` or `path:line` of the place to change, or None where there is no file (a command line).
        remedy: what to do about it.
        dependent: the fragment that asks for what is not selected; without it the error would be gone.
        candidates: fragments any of which would give what is missing.
    """

    def __init__(
        self,
        message: str,
        where: str | None = None,
        remedy: str | None = None,
        *,
        dependent: str | None = None,
        candidates: Sequence[str] = (),
    ):
        self.message, self.where, self.remedy = message, where, remedy
        self.dependent, self.candidates = dependent, tuple(candidates)
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n  {self.remedy}" if self.remedy else ""
        return "\n".join(short(printable(line), 1000) for line in f"{place}{self.message}{remedy}".split("\n"))


def printable(text: str) -> str:
    """A text in which what moves a cursor, or turns the direction of reading, is written as Python does."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def short(text: str, most: int = 100) -> str:
    """A value as messages give it: of a long one the start."""
    return text if len(text) <= most else f"{text[:most]}…"


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy that names the known names most like `name`, or all of them where none is alike."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if not names:
        return "There is none to choose from."
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"There is {', '.join(names[:20])}{', …' if len(names) > 20 else ''}."
