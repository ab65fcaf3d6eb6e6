"""The one exception that a user of gen meets: it states a place, what is wrong and what to do.

Any function of the generator may raise it for a mistake in what a user has written. Docstrings list other exceptions
only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class LoomError(Exception):
    """A mistake in a fragment, an architecture, a target or a command line.

    Args:
        message: states what is wrong.
        where: `path` or `path:line` of the place to change; None if there is no file, as for a command line.
        remedy: states what to do about it.
        dependent: names the fragment that needs something unselected; without that fragment there is no error.
        candidates: name the fragments any one of which would provide what is missing.
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
    """Escapes characters that move the cursor or change the direction of text, as Python writes them."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def short(text: str, most: int = 100) -> str:
    """Truncates a value for a message."""
    return text if len(text) <= most else f"{text[:most]}…"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a remedy that suggests the known names closest to `name`, or lists all if none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if not names:
        return "There is none to choose from."
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"There is {', '.join(names[:20])}{', …' if len(names) > 20 else ''}."
