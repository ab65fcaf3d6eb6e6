"""Finds the edits of a package: the lines that differ from the woven ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

from generator.code.hunks import hunks


class Replacement(NamedTuple):
    """A replacement of lines in a source file.

    Attributes:
        start, stop: the replaced lines, from 0; equal for an insertion.
        lines: the new lines.
    """

    path: str
    start: int
    stop: int
    lines: tuple[str, ...]

    def overlaps(self, other: Replacement) -> bool:
        """Returns whether the two exclude each other, or are the same."""
        if self.path != other.path:
            return False
        if self.start == self.stop or other.start == other.stop:
            return self[1:3] == other[1:3]
        return self.start < other.stop and other.start < self.stop


class Hunk(NamedTuple):
    """A diff hunk between a woven file and the edited one.

    Attributes:
        path: of the file in the package.
        start, stop: the replaced lines of the woven file, from 0; equal for an insertion.
        lines: the new lines.
        at: line number, from 1, of the first new line in the edited file, or of the line below a deletion.
    """

    path: str
    start: int
    stop: int
    lines: tuple[str, ...]
    at: int

    @property
    def rows(self) -> range:
        """Returns the replaced rows of the woven file; for an insertion, the two rows around it."""
        if self.start < self.stop:
            return range(self.start, self.stop)
        return range(max(self.start - 1, 0), self.start + 1)

    @property
    def places(self) -> set[tuple[str, int]]:
        """Returns path and line of each new line in the edited file, or of the line below a deletion."""
        return {(self.path, line) for line in range(self.at, self.at + max(len(self.lines), 1))}

    def split(self) -> list[Hunk]:
        """Returns one hunk per line, if it replaces each line by one line."""
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
        line: in the edited file; 0 for the whole file.
    """

    path: str
    line: int
    reason: str
    remedy: str


class PackageEdits(NamedTuple):
    """All edits of a package.

    Attributes:
        texts: path -> edited text, of each changed file.
    """

    hunks: list[Hunk]
    refusals: list[Refusal]
    texts: dict[str, str]


def apply_replacements(text: str, changes: Iterable[Replacement | Hunk]) -> str:
    """Returns a text with replacements made, which must not overlap."""
    lines = text.split("\n")
    for change in sorted(changes, key=lambda change: (change.start, change.stop), reverse=True):
        lines[change.start : change.stop] = change.lines
    return "\n".join(lines)


def find_edits(woven: dict[str, str], on_disk: dict[str, bytes | str]) -> PackageEdits:
    """Compares the woven files with those on disk.

    Args:
        woven: path -> text.
        on_disk: path -> bytes of a file, or the kind of anything else ("folder", "link").
    """
    edits = PackageEdits([], [], {})

    def refuse(path: str, reason: str, remedy: str) -> None:
        edits.refusals.append(Refusal(path, 0, reason, remedy))

    for path, text in woven.items():
        data = on_disk.get(path, "gone")
        if isinstance(data, str):
            remedy = "gen build makes it again; a package without it needs an architecture without its fragments."
            refuse(path, "is gone" if data == "gone" else f"is a {data}", remedy)
            continue
        try:
            after = data.decode()
        except UnicodeDecodeError:
            refuse(path, "is not UTF-8 text", "Write it as UTF-8.")
            continue
        if "\r" in after and "\r" not in text:
            refuse(path, "has carriage returns, and gen ends lines in \\n", "Take them out.")
            after = re.sub(r"\r\n?", "\n", after)
        if after != text:
            edits.texts[path] = after
            edits.hunks.extend(_diff(path, text, after))
    for path in sorted(on_disk.keys() - woven.keys()):
        remedy = "A new file is a fragment's work; or name it in packages.toml: own = [...]."
        refuse(path, "no fragment made this file", remedy)
    return edits


def _diff(path: str, before: str, after: str) -> list[Hunk]:
    """Returns the hunks between two texts of a file."""
    old_lines, new_lines, result = before.split("\n"), after.split("\n"), []
    for old, new in hunks(old_lines, new_lines):
        lines, start, stop = tuple(new_lines[new.start : new.stop]), old.start, old.stop
        if start == len(old_lines) and not old_lines[-1] and not lines[-1]:
            # lines added at the end go above the empty string that follows the last newline
            lines, start, stop = ("", *lines[:-1]), start - 1, stop - 1
        result.append(Hunk(path, start, stop, lines, new.start + 1))
    return result


def find_mismatch(
    woven: dict[str, str], rewoven: dict[str, str], required: list[Hunk], optional: list[Hunk]
) -> tuple[set[Hunk], str, int]:
    """Compares a rewoven package with the woven one plus all required hunks and any of the optional ones.

    Returns:
        The optional hunks that the rewoven package has; the file and the line, from 1, of the first mismatch, or ''
        and 0.
    """
    implied: set[Hunk] = set()
    for path in sorted(woven.keys() | rewoven.keys()):
        if path not in woven or path not in rewoven:
            return implied, path, 1
        must, may = ([hunk for hunk in group if hunk.path == path] for group in (required, optional))
        differences = {hunk[:4] for hunk in _diff(path, woven[path], rewoven[path])} if may else set()
        choices: tuple[list[Hunk], ...] = [], may, [hunk for hunk in may if hunk[:4] in differences]
        expected = [apply_replacements(woven[path], [*must, *choice]) for choice in choices]
        if rewoven[path] not in expected:
            return implied, path, max(_first_difference(rewoven[path], text) for text in expected)
        implied.update(choices[expected.index(rewoven[path])])
    return implied, "", 0


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip_longest(one.split("\n"), other.split("\n")), 1)
    return next(number for number, (left, right) in pairs if left != right)
