"""What someone changed in a package: hunks, each in one file, against what is woven now."""

from __future__ import annotations

import re
from typing import NamedTuple

from generator.code.hunks import hunks


class Hunk(NamedTuple):
    """Lines that were replaced.

    Attributes:
        path: of the file in the package.
        start, stop: which lines of the woven file, from 0; none where lines were inserted.
        lines: what stands in their place.
        at: the first of these lines, or the one below a deletion, in the edited file, from 1.
    """

    path: str
    start: int
    stop: int
    lines: tuple[str, ...]
    at: int

    def lines_alone(self) -> list[Hunk]:
        """Each line that was replaced by one as an edit of its own."""
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
        reason: why.
        remedy: what can be done.
    """

    path: str
    line: int
    reason: str
    remedy: str


class Edited(NamedTuple):
    """All that differs.

    Attributes:
        texts: of each file that was changed, its text as it is now.
    """

    hunks: list[Hunk]
    refusals: list[Refusal]
    texts: dict[str, str]


def find_edits(woven: dict[str, str], found: dict[str, bytes | str]) -> Edited:
    """Compares what is woven with what is there.

    Args:
        woven: path -> text.
        found: path -> bytes of what is there, or a word for what is there in the place of a file.
    """
    edited, refusals, texts = [], [], {}
    for path, text in woven.items():
        data = found.get(path, "gone")
        if isinstance(data, str):
            reason = "is gone" if data == "gone" else f"is a {data}"
            remedy = "gen build makes it again; a package without it needs an architecture without its fragments."
            refusals.append(Refusal(path, 0, reason, remedy))
            continue
        if data == text.encode():
            continue
        try:
            now = data.decode()
        except UnicodeDecodeError:
            refusals.append(Refusal(path, 0, "is not UTF-8 text", "Write it as UTF-8."))
            continue
        if "\r" in now and "\r" not in text:
            refusals.append(
                Refusal(path, 0, "its lines end in \\r\\n, and gen ends lines in \\n", "Give it its line ends.")
            )
            now = re.sub(r"\r\n?", "\n", now)
        texts[path] = now
        before, after = text.split("\n"), now.split("\n")
        for old, new in hunks(before, after):
            lines, start = tuple(after[new.start : new.stop]), old.start
            at_end = start == len(before) and not before[-1] and not lines[-1]
            if at_end:  # what was added below the last line stands above the empty one that ends the file
                lines, start = ("", *lines[:-1]), start - 1
            edited.append(Hunk(path, start, old.stop - at_end, lines, new.start + 1))
    for path in sorted(found.keys() - woven.keys()):
        remedy = "A new file is a fragment's work; or name it in packages.toml: own = [...]."
        refusals.append(Refusal(path, 0, "no fragment made this file", remedy))
    return Edited(edited, refusals, texts)


def fits(
    woven: dict[str, str], made: dict[str, str], needed: list[Hunk], optional: list[Hunk]
) -> tuple[set[Hunk], str, int]:
    """Whether what was made is what was woven, with all the needed hunks and some of the optional ones.

    Returns:
        The optional hunks that came along; and, where it is something else, the file and its line from 1, else '', 0.
    """
    came: set[Hunk] = set()
    for path in sorted(woven.keys() | made.keys()):
        if path not in woven or path not in made:
            return came, path, 1
        in_file = sorted(
            [(hunk, True) for hunk in needed if hunk.path == path]
            + [(hunk, False) for hunk in optional if hunk.path == path],
            key=lambda pair: (pair[0].start, pair[0].stop),
        )
        if not in_file and woven[path] == made[path]:
            continue
        taken, line = _walk(woven[path].split("\n"), made[path].split("\n"), in_file)
        if line:
            return came, path, line
        came |= taken
    return came, "", 0


def _walk(before: list[str], after: list[str], in_file: list[tuple[Hunk, bool]]) -> tuple[set[Hunk], int]:
    """Goes through a file with every choice that still fits: lines passed in `after` -> the hunks taken."""
    ways: dict[int, tuple[Hunk, ...]] = {0: ()}
    furthest, position = 0, 0
    for hunk, must in [*in_file, (Hunk("", len(before), len(before), (), 0), True)]:
        next_ways: dict[int, tuple[Hunk, ...]] = {}
        same = before[position : hunk.start]
        choices = [(hunk.lines, (hunk,))] + ([] if must else [(tuple(before[hunk.start : hunk.stop]), ())])
        for done, taken in ways.items():
            match = _same(same, after[done:])
            furthest = max(furthest, done + match)
            if match < len(same):
                continue
            for lines, more in choices:
                match = _same(list(lines), after[done + len(same) :])
                furthest = max(furthest, done + len(same) + match)
                if match == len(lines):
                    next_ways.setdefault(done + len(same) + len(lines), taken + more)
        ways, position = next_ways, hunk.stop
    if len(after) in ways:
        return set(ways[len(after)]), 0
    return set(), min(furthest, len(after) - 1) + 1


def _same(lines: list[str], other: list[str]) -> int:
    """How many lines at the start are the same."""
    for number, (one, two) in enumerate(zip(lines, other, strict=False)):
        if one != two:
            return number
    return min(len(lines), len(other))
