"""Which changes of source lines may make a hunk, the likeliest first. Weaving decides which of them do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import groupby, pairwise
from typing import NamedTuple

from generator.code.traced import Origin
from generator.pull.edited import Hunk, Replacement
from generator.pull.sources import PackageSources, indent, shifted

_WORD = re.compile(r"\w+|[^\w\s]")


class _Token(NamedTuple):
    text: str
    start: int
    end: int


class _Home(NamedTuple):
    """The token of a source line that a token of the package came from, and its number among those of the sources."""

    number: int
    origin: Origin
    token: _Token


class _Unplaced(Exception):
    """An edit has no place in the sources."""


def candidates(woven: PackageSources, hunk: Hunk) -> list[list[Replacement]]:
    """Finds ways to make a hunk."""
    ways: list[Callable[[], list[Replacement]]]
    if hunk.start == hunk.stop:
        ways = [lambda: _insert(woven, hunk, below=True), lambda: _insert(woven, hunk, below=False)]
    else:
        ways = [lambda: _replace_block(woven, hunk)]
        ways += [lambda: _replace_tokens(woven, hunk), lambda: _replace_tokens(woven, hunk, after=True)]
        ways += [] if hunk.lines else [lambda: _delete(woven, hunk)]
    found: list[list[Replacement]] = []
    for way in ways:
        try:
            changes = list(dict.fromkeys(way()))
        except _Unplaced:
            continue
        if changes and changes not in found:
            found.append(changes)
    return found


def _replace_block(woven: PackageSources, hunk: Hunk) -> list[Replacement]:
    """Replaces lines that are copies of lines which stand together in one fragment."""
    sources = [woven.copied(hunk.path, row) for row in range(hunk.start, hunk.stop)]
    if sources[0] is None or sources != [(sources[0][0], sources[0][1] + n) for n in range(len(sources))]:
        raise _Unplaced
    path, first = sources[0]
    pairs = zip(woven.lines[hunk.path][hunk.start : hunk.stop], woven.source(path)[first:], strict=False)
    moves = {indent(there) - indent(here) for here, there in pairs if here.strip()}
    if len(moves) > 1:
        raise _Unplaced
    return [Replacement(path, first, first + len(sources), shifted(hunk.lines, moves.pop() if moves else 0))]


def _insert(woven: PackageSources, hunk: Hunk, below: bool) -> list[Replacement]:
    """Inserts lines below the source of the row before, or above that of the row after."""
    lines, row = woven.lines[hunk.path], hunk.start - 1 if below else hunk.start
    if source := woven.copied(hunk.path, row):
        path, number = source
    else:
        origins = woven.origins(hunk.path, row)
        if not origins or not lines[row].strip():
            raise _Unplaced
        path, number = origins[-1 if below else 0].path, origins[-1 if below else 0].line - 1
    while 0 < row < len(lines) - 1 and not lines[row].strip():  # a blank line has no indentation
        row += -1 if below else 1
    beside = woven.copied(hunk.path, row)
    there = woven.source(path)[beside[1] if beside and beside[0] == path else number]
    by = indent(there) - indent(lines[row]) if there.strip() else 0
    return [Replacement(path, number + below, number + below, shifted(hunk.lines, by))]


class _Tokens:
    """The tokens of a hunk's lines before and after it, and where those before came from.

    Attributes:
        homes: of each token before; None for one that weaving wrote.
        renamed: names that weaving changed -> those in the sources.
    """

    def __init__(self, woven: PackageSources, hunk: Hunk):
        before = "\n".join(woven.lines[hunk.path][hunk.start : hunk.stop])
        self.text = "\n".join(hunk.lines)
        self.old, self.new = _tokens(before), _tokens(self.text)
        rows = range(hunk.start, hunk.stop)
        origins = dict.fromkeys(origin for row in rows for origin in woven.origins(hunk.path, row))
        there = [(origin, token) for origin in origins for token in _tokens(woven.text_at(origin))]
        self.homes: list[_Home | None] = [None] * len(self.old)
        self.renamed: dict[str, str] = {}
        for kind, i, j, k, end in _compare(self.old, [token for _, token in there]):
            for n in range(j - i if kind == "equal" else 0):
                self.homes[i + n] = _Home(k + n, *there[k + n])
            if kind == "replace" and (j - i, end - k) == (1, 1) and self.old[i].text.isidentifier():
                self.renamed[self.old[i].text] = there[k][1].text


def _delete(woven: PackageSources, hunk: Hunk) -> list[Replacement]:
    """Deletes the source lines whose first tokens are gone, also where they are not copied."""
    homes = [home for home in _Tokens(woven, hunk).homes if home]
    gone = {home.origin: home.token.start for home in reversed(homes)}
    origins = [origin for origin, start in gone.items() if start == indent(woven.text_at(origin))]
    return [Replacement(origin.path, origin.line - 1, origin.line, ()) for origin in origins]


def _replace_tokens(woven: PackageSources, hunk: Hunk, after: bool = False) -> list[Replacement]:
    """Changes the source tokens of the tokens that changed.

    This serves where a line is no copy: a value was threaded through it, a setting filled, a name changed, or ruff
    broke it.

    Args:
        after: whether inserted tokens stand after the token before them, or else before the one after them.
    """
    tokens = _Tokens(woven, hunk)
    new, homes = tokens.new, tokens.homes
    edits: dict[Origin, list[tuple[int, int, str]]] = {}

    def replace(origin: Origin, start: int, end: int, first: int = 0, stop: int = 0) -> None:
        """Puts a part of the new text into a source line."""
        part = re.sub(r"\w+", lambda word: tokens.renamed.get(word[0], word[0]), tokens.text[first:stop])
        edits.setdefault(origin, []).append((start, end, part))

    for kind, i, j, k, end in _compare(tokens.old, new):
        left, right = (homes[i - 1] if i else None), (homes[i] if i < len(homes) else None)
        last = next((home for home in reversed(homes) if home), None) if i == len(homes) else None
        if kind == "insert" and right and not (after and left):
            replace(right.origin, right.token.start, right.token.start, new[k].start, new[end].start)
        elif kind == "insert" and left:
            replace(left.origin, left.token.end, left.token.end, new[k - 1].end, new[end - 1].end)
        elif kind == "insert" and last:  # below a line that ends in what weaving wrote
            end_of_line = len(woven.text_at(last.origin))
            replace(last.origin, end_of_line, end_of_line, new[k - 1].end, new[end - 1].end)
        elif kind == "insert":
            raise _Unplaced
        elif kind == "replace":
            first, *others = _runs(homes[i:j])
            replace(first[0].origin, first[0].token.start, first[-1].token.end, new[k].start, new[end - 1].end)
            for run in others:
                replace(run[0].origin, run[0].token.start, run[-1].token.end)
        elif kind == "delete":
            for run in _runs(homes[i:j]):
                start = left.token.end if left and left.origin == run[0].origin else run[0].token.start
                replace(run[0].origin, start, run[-1].token.end)
    by = {origin: indent(woven.text_at(origin)) - indent(woven.lines[hunk.path][hunk.start]) for origin in edits}
    return [_changed(woven, origin, edits[origin], by[origin]) for origin in edits]


def _tokens(text: str) -> list[_Token]:
    return [_Token(match[0], *match.span()) for match in _WORD.finditer(text)]


def _compare(old: list[_Token], new: list[_Token]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, [t.text for t in old], [t.text for t in new], autojunk=False).get_opcodes()


def _runs(homes: list[_Home | None]) -> list[list[_Home]]:
    """Splits the homes of tokens by source line; nothing else may stand between them."""
    placed = [home for home in homes if home]
    if len(placed) < len(homes) or any(two.number != one.number + 1 for one, two in pairwise(placed)):
        raise _Unplaced
    return [list(run) for _, run in groupby(placed, key=lambda home: home.origin)]


def _changed(woven: PackageSources, origin: Origin, edits: list[tuple[int, int, str]], by: int) -> Replacement:
    line = woven.text_at(origin)
    for start, end, text in sorted(edits, reverse=True):
        line = line[:start] + text + line[end:]
    first, *others = [part.rstrip() for part in line.split("\n")]
    return Replacement(origin.path, origin.line - 1, origin.line, (first, *shifted(others, by)) if line.strip() else ())
