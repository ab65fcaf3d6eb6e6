"""Edits of a package: the lines that differ from what is woven now."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

from generator.code.hunks import hunks


class Replacement(NamedTuple):
    """Lines of a file that are replaced.

    Attributes:
        start, stop: from 0; none where lines are inserted.
    """

    path: str
    start: int
    stop: int
    lines: tuple[str, ...]

    def overlaps(self, other: Replacement) -> bool:
        """Tells whether the two cannot both be made, or are one."""
        if self.path != other.path:
            return False
        if self.start == self.stop or other.start == other.stop:
            return self[1:3] == other[1:3]
        return self.start < other.stop and other.start < self.stop


class Hunk(NamedTuple):
    """Lines that someone replaced.

    Attributes:
        path: of the file in the package.
        start, stop: the lines of the woven file, from 0; none where lines were inserted.
        lines: the lines that replace them.
        at: the first of these, or the one below a deletion, in the edited file, from 1.
    """

    path: str
    start: int
    stop: int
    lines: tuple[str, ...]
    at: int

    @property
    def rows(self) -> range:
        """The lines of the woven file that it replaces, or the two that it stands between."""
        if self.start < self.stop:
            return range(self.start, self.stop)
        return range(max(self.start - 1, 0), self.start + 1)

    @property
    def places(self) -> set[tuple[str, int]]:
        """The lines in the edited file, or the one below a deletion, each with the path."""
        return {(self.path, line) for line in range(self.at, self.at + max(len(self.lines), 1))}

    def split(self) -> list[Hunk]:
        """Makes each line that was replaced by one line an edit of its own."""
        if len(self.lines) != self.stop - self.start:
            return [self]
        return [
            Hunk(self.path, self.start + n, self.start + n + 1, (line,), self.at + n)
            for n, line in enumerate(self.lines)
        ]


class Refusal(NamedTuple):
    """An edit that cannot go home.

    Attributes:
        path: of the file in the package.
        line: in the edited file, 0 for the whole file.
    """

    path: str
    line: int
    reason: str
    remedy: str


class Edited(NamedTuple):
    """All edits of a package.

    Attributes:
        texts: of each file that was changed, its text as it is now.
    """

    hunks: list[Hunk]
    refusals: list[Refusal]
    texts: dict[str, str]


def apply_replacements(text: str, changes: Iterable[Replacement | Hunk]) -> str:
    """Makes changes of one text."""
    lines = text.split("\n")
    for change in sorted(changes, key=lambda change: (change.start, change.stop), reverse=True):
        lines[change.start : change.stop] = change.lines
    return "\n".join(lines)


def find_edits(woven: dict[str, str], found: dict[str, bytes | str]) -> Edited:
    """Compares what is woven with what is on disk.

    Args:
        woven: path -> text.
        found: path -> bytes of a file, or a word for what is there in its place.
    """
    edited: list[Hunk] = []
    refusals: list[Refusal] = []
    texts: dict[str, str] = {}
    for path, text in woven.items():
        data = found.get(path, "gone")
        if isinstance(data, str):
            reason = "is gone" if data == "gone" else f"is a {data}"
            remedy = "gen build makes it again; a package without it needs an architecture without its fragments."
            refusals.append(Refusal(path, 0, reason, remedy))
            continue
        try:
            now = data.decode()
        except UnicodeDecodeError:
            refusals.append(Refusal(path, 0, "is not UTF-8 text", "Write it as UTF-8."))
            continue
        if "\r" in now and "\r" not in text:
            reason = "has carriage returns, and gen ends lines in \\n"
            refusals.append(Refusal(path, 0, reason, "Take them out."))
            now = re.sub(r"\r\n?", "\n", now)
        if now != text:
            texts[path] = now
            edited += _hunks(path, text, now)
    for path in sorted(found.keys() - woven.keys()):
        remedy = "A new file is a fragment's work; or name it in packages.toml: own = [...]."
        refusals.append(Refusal(path, 0, "no fragment made this file", remedy))
    return Edited(edited, refusals, texts)


def _hunks(path: str, before: str, after: str) -> list[Hunk]:
    old_lines, new_lines, found = before.split("\n"), after.split("\n"), []
    for old, new in hunks(old_lines, new_lines):
        lines, start, stop = tuple(new_lines[new.start : new.stop]), old.start, old.stop
        if start == len(old_lines) and not old_lines[-1] and not lines[-1]:
            # lines added at the end stand above the empty string that follows the last newline
            lines, start, stop = ("", *lines[:-1]), start - 1, stop - 1
        found.append(Hunk(path, start, stop, lines, new.start + 1))
    return found


def fits(
    woven: dict[str, str], made: dict[str, str], needed: list[Hunk], optional: list[Hunk]
) -> tuple[set[Hunk], str, int]:
    """Compares what was made with what was woven, all the needed hunks and any of the optional ones.

    Returns:
        The optional hunks that were made; and the file and the line, from 1, of the first difference, or '' and 0.
    """
    came: set[Hunk] = set()
    for path in sorted(woven.keys() | made.keys()):
        if path not in woven or path not in made:
            return came, path, 1
        must, may = ([hunk for hunk in some if hunk.path == path] for some in (needed, optional))
        differences = {hunk[:4] for hunk in _hunks(path, woven[path], made[path])} if may else set()
        choices: tuple[list[Hunk], ...] = [], may, [hunk for hunk in may if hunk[:4] in differences]
        wanted = [apply_replacements(woven[path], [*must, *choice]) for choice in choices]
        if made[path] not in wanted:
            return came, path, max(_first_difference(made[path], text) for text in wanted)
        came.update(choices[wanted.index(made[path])])
    return came, "", 0


def _first_difference(made: str, wanted: str) -> int:
    pairs = enumerate(zip_longest(made.split("\n"), wanted.split("\n")), 1)
    return next(number for number, (one, other) in pairs if one != other)
