"""Proposes changes of source lines that may make a hunk, the likeliest first. Weaving decides which of them do.

A hunk is a part of a diff, whose lines may be comments, half a call or no Python: it is applied as a patch, by lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import groupby, pairwise
from typing import NamedTuple

from generator.code.traced import Origin
from generator.pull.edits import Hunk, Replacement
from generator.pull.sources import PackageSources

_TOKEN = re.compile(r"(\w+|[^\w\s])")


class _SourceToken(NamedTuple):
    """The token of a source line from which a token of the package was copied.

    Attributes:
        number: among the tokens of all source lines.
        place: among the parts of its own line, of `_split`.
    """

    number: int
    origin: Origin
    place: int
    text: str


class _NoSource(Exception):
    """Raised when an edit corresponds to no lines of the sources."""


def find_candidates(woven: PackageSources, hunk: Hunk) -> list[list[Replacement]]:
    """Returns the candidates for a hunk, each a list of replacements in sources."""
    methods: list[Callable[[], list[Replacement]]]
    if hunk.start == hunk.stop:
        methods = [lambda: _insert(woven, hunk, below=True), lambda: _insert(woven, hunk, below=False)]
    else:
        methods = [lambda: _replace_block(woven, hunk)]
        methods += [lambda: _replace_tokens(woven, hunk), lambda: _replace_tokens(woven, hunk, after=True)]
        methods += [] if hunk.lines else [lambda: _delete(woven, hunk)]
    candidates: list[list[Replacement]] = []
    for method in methods:
        try:
            changes = list(dict.fromkeys(method()))
        except _NoSource:
            continue
        if changes and changes not in candidates:
            candidates.append(changes)
    return candidates


def _replace_block(woven: PackageSources, hunk: Hunk) -> list[Replacement]:
    """Replaces lines that are copies of consecutive lines of one fragment."""
    sources = [woven.copied_from(hunk.path, row) for row in range(hunk.start, hunk.stop)]
    if sources[0] is None or sources != [(sources[0][0], sources[0][1] + n) for n in range(len(sources))]:
        raise _NoSource
    path, first = sources[0]
    pairs = zip(woven.lines[hunk.path][hunk.start : hunk.stop], woven.source(path)[first:], strict=False)
    shifts = {indent(original) - indent(copy) for copy, original in pairs if copy.strip()}
    if len(shifts) > 1:
        raise _NoSource
    return [Replacement(path, first, first + len(sources), shift(hunk.lines, shifts.pop() if shifts else 0))]


def indent(line: str) -> int:
    """Returns the number of spaces that a line begins with."""
    return len(line) - len(line.lstrip(" "))


def shift(lines: Sequence[str], by: int) -> tuple[str, ...]:
    """Indents lines of a patch by a number of spaces; a negative one dedents each line as far as possible."""
    return tuple(" " * by + line[max(min(-by, indent(line)), 0) :] if line.strip() else line for line in lines)


def _insert(woven: PackageSources, hunk: Hunk, below: bool) -> list[Replacement]:
    """Inserts lines below the source of the previous row, or above that of the next one."""
    lines, row = woven.lines[hunk.path], hunk.start - 1 if below else hunk.start
    if source := woven.copied_from(hunk.path, row):
        path, number = source
    else:
        origins = woven.origins(hunk.path, row)
        if not origins or not lines[row].strip():
            raise _NoSource
        path, number = origins[-1 if below else 0].path, origins[-1 if below else 0].line - 1
    while 0 < row < len(lines) - 1 and not lines[row].strip():  # a blank line has no indentation
        row += -1 if below else 1
    neighbour = woven.copied_from(hunk.path, row)
    original = woven.source(path)[neighbour[1] if neighbour and neighbour[0] == path else number]
    by = indent(original) - indent(lines[row]) if original.strip() else 0
    return [Replacement(path, number + below, number + below, shift(hunk.lines, by))]


class _TokenAlignment:
    """The tokens of a hunk's old and new lines, aligned with those of the sources.

    Attributes:
        parts: of the new lines, of `_split`.
        old, new: tokens.
        sources: of each old token; None for one that weaving wrote.
        renamed: name in the package -> name in the sources, where weaving renamed it.
    """

    def __init__(self, woven: PackageSources, hunk: Hunk):
        self.parts = _split("\n".join(hunk.lines))
        self.old = _split("\n".join(woven.lines[hunk.path][hunk.start : hunk.stop]))[1::2]
        self.new = self.parts[1::2]
        rows = range(hunk.start, hunk.stop)
        origins = dict.fromkeys(origin for row in rows for origin in woven.origins(hunk.path, row))
        lines = [(origin, _split(woven.text_at(origin))) for origin in origins]
        words = [(origin, place, parts[place]) for origin, parts in lines for place in range(1, len(parts), 2)]
        available = [_SourceToken(number, *word) for number, word in enumerate(words)]
        self.sources: list[_SourceToken | None] = [None] * len(self.old)
        self.renamed: dict[str, str] = {}
        for kind, i, j, k, end in _opcodes(self.old, [token.text for token in available]):
            if kind == "equal":
                self.sources[i:j] = available[k:end]
            if kind == "replace" and (j - i, end - k) == (1, 1) and self.old[i].isidentifier():
                self.renamed[self.old[i]] = available[k].text


def _delete(woven: PackageSources, hunk: Hunk) -> list[Replacement]:
    """Deletes the source lines whose first tokens the hunk removes, even if they are not copied unchanged."""
    sources = [source for source in _TokenAlignment(woven, hunk).sources if source]
    first = {source.origin: source.place for source in reversed(sources)}
    origins = [origin for origin, place in first.items() if place == 1]
    return [Replacement(origin.path, origin.line - 1, origin.line, ()) for origin in origins]


def _replace_tokens(woven: PackageSources, hunk: Hunk, after: bool = False) -> list[Replacement]:
    """Replaces the source tokens of the changed tokens.

    For lines that are no copies: with a threaded value, a filled setting or a renamed variable, or broken by black.

    Args:
        after: attach inserted tokens to the preceding token and not to the following one.
    """
    alignment = _TokenAlignment(woven, hunk)
    sources = alignment.sources
    edits: dict[Origin, list[tuple[int, int, str]]] = {}

    def replace(origin: Origin, start: int, end: int, first: int = 0, stop: int = 0) -> None:
        """Puts parts of the new lines in place of parts of a source line."""
        new = "".join(alignment.renamed.get(part, part) for part in alignment.parts[first:stop])
        edits.setdefault(origin, []).append((start, end, new))

    for kind, i, j, k, end in _opcodes(alignment.old, alignment.new):
        left, right = (sources[i - 1] if i else None), (sources[i] if i < len(sources) else None)
        last = next((source for source in reversed(sources) if source), None) if i == len(sources) else None
        first, stop = 2 * k + 1, 2 * end  # of the new tokens, without the blanks around them
        if kind == "insert" and right and not (after and left):
            replace(right.origin, right.place, right.place, first, stop + 1)
        elif kind == "insert" and left:
            replace(left.origin, left.place + 1, left.place + 1, first - 1, stop)
        elif kind == "insert" and last:  # below a line that ends in tokens of the weaver
            end_of_line = len(_split(woven.text_at(last.origin)))
            replace(last.origin, end_of_line, end_of_line, first - 1, stop)
        elif kind == "insert":
            raise _NoSource
        elif kind == "replace":
            run, *others = _split_by_line(sources[i:j])
            replace(run[0].origin, run[0].place, run[-1].place + 1, first, stop)
            for run in others:
                replace(run[0].origin, run[0].place, run[-1].place + 1)
        elif kind == "delete":
            for run in _split_by_line(sources[i:j]):
                start = left.place + 1 if left and left.origin == run[0].origin else run[0].place
                replace(run[0].origin, start, run[-1].place + 1)
    by = {origin: indent(woven.text_at(origin)) - indent(woven.lines[hunk.path][hunk.start]) for origin in edits}
    return [_edit_line(woven, origin, edits[origin], by[origin]) for origin in edits]


def _split(text: str) -> list[str]:
    """Returns the parts of a text: blanks, a token, blanks, a token, and so on to the blanks at the end."""
    return _TOKEN.split(text)


def _opcodes(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _split_by_line(sources: list[_SourceToken | None]) -> list[list[_SourceToken]]:
    """Groups consecutive source tokens by line; raises _NoSource if any other token is between them."""
    known = [source for source in sources if source]
    if len(known) < len(sources) or any(two.number != one.number + 1 for one, two in pairwise(known)):
        raise _NoSource
    return [list(run) for _, run in groupby(known, key=lambda source: source.origin)]


def _edit_line(woven: PackageSources, origin: Origin, edits: list[tuple[int, int, str]], by: int) -> Replacement:
    parts = _split(woven.text_at(origin))
    for start, end, text in sorted(edits, reverse=True):
        parts[start:end] = [text]
    line = "".join(parts)
    first, *others = [part.rstrip() for part in line.split("\n")]
    return Replacement(origin.path, origin.line - 1, origin.line, (first, *shift(others, by)) if line.strip() else ())
