"""Proposes changes of source lines that may make a hunk, the likeliest first. Weaving decides which of them do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import groupby, pairwise
from typing import NamedTuple

from generator.code.traced import Origin
from generator.pull.edits import Hunk, Replacement
from generator.pull.sources import PackageSources, indent, shift

_TOKEN = re.compile(r"\w+|[^\w\s]")


class _Token(NamedTuple):
    text: str
    start: int
    end: int


class _SourceToken(NamedTuple):
    """The token of a source line from which a token of the package was copied.

    Attributes:
        number: position among all tokens of the source lines.
    """

    number: int
    origin: Origin
    token: _Token


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
        text: the new lines.
        old, new: tokens.
        sources: of each old token; None for one that weaving wrote.
        renamed: name in the package -> name in the sources, where weaving renamed it.
    """

    def __init__(self, woven: PackageSources, hunk: Hunk):
        self.text = "\n".join(hunk.lines)
        self.old = _tokenize("\n".join(woven.lines[hunk.path][hunk.start : hunk.stop]))
        self.new = _tokenize(self.text)
        rows = range(hunk.start, hunk.stop)
        origins = dict.fromkeys(origin for row in rows for origin in woven.origins(hunk.path, row))
        available = [(origin, token) for origin in origins for token in _tokenize(woven.text_at(origin))]
        self.sources: list[_SourceToken | None] = [None] * len(self.old)
        self.renamed: dict[str, str] = {}
        for kind, i, j, k, end in _opcodes(self.old, [token for _, token in available]):
            for n in range(j - i if kind == "equal" else 0):
                self.sources[i + n] = _SourceToken(k + n, *available[k + n])
            if kind == "replace" and (j - i, end - k) == (1, 1) and self.old[i].text.isidentifier():
                self.renamed[self.old[i].text] = available[k][1].text


def _delete(woven: PackageSources, hunk: Hunk) -> list[Replacement]:
    """Deletes the source lines whose first tokens the hunk removes, even if they are not copied unchanged."""
    sources = [source for source in _TokenAlignment(woven, hunk).sources if source]
    starts = {source.origin: source.token.start for source in reversed(sources)}
    origins = [origin for origin, start in starts.items() if start == indent(woven.text_at(origin))]
    return [Replacement(origin.path, origin.line - 1, origin.line, ()) for origin in origins]


def _replace_tokens(woven: PackageSources, hunk: Hunk, after: bool = False) -> list[Replacement]:
    """Replaces the source tokens of the changed tokens.

    For lines that are no copies: with a threaded value, a filled setting or a renamed variable, or broken by black.

    Args:
        after: attach inserted tokens to the preceding token and not to the following one.
    """
    alignment = _TokenAlignment(woven, hunk)
    new, sources = alignment.new, alignment.sources
    edits: dict[Origin, list[tuple[int, int, str]]] = {}

    def replace(origin: Origin, start: int, end: int, first: int = 0, stop: int = 0) -> None:
        """Replaces a part of a source line by a part of the new text."""
        part = re.sub(r"\w+", lambda word: alignment.renamed.get(word[0], word[0]), alignment.text[first:stop])
        edits.setdefault(origin, []).append((start, end, part))

    for kind, i, j, k, end in _opcodes(alignment.old, new):
        left, right = (sources[i - 1] if i else None), (sources[i] if i < len(sources) else None)
        last = next((source for source in reversed(sources) if source), None) if i == len(sources) else None
        if kind == "insert" and right and not (after and left):
            replace(right.origin, right.token.start, right.token.start, new[k].start, new[end].start)
        elif kind == "insert" and left:
            replace(left.origin, left.token.end, left.token.end, new[k - 1].end, new[end - 1].end)
        elif kind == "insert" and last:  # below a line that ends in tokens of the weaver
            end_of_line = len(woven.text_at(last.origin))
            replace(last.origin, end_of_line, end_of_line, new[k - 1].end, new[end - 1].end)
        elif kind == "insert":
            raise _NoSource
        elif kind == "replace":
            first, *others = _split_by_line(sources[i:j])
            replace(first[0].origin, first[0].token.start, first[-1].token.end, new[k].start, new[end - 1].end)
            for run in others:
                replace(run[0].origin, run[0].token.start, run[-1].token.end)
        elif kind == "delete":
            for run in _split_by_line(sources[i:j]):
                start = left.token.end if left and left.origin == run[0].origin else run[0].token.start
                replace(run[0].origin, start, run[-1].token.end)
    by = {origin: indent(woven.text_at(origin)) - indent(woven.lines[hunk.path][hunk.start]) for origin in edits}
    return [_edit_line(woven, origin, edits[origin], by[origin]) for origin in edits]


def _tokenize(text: str) -> list[_Token]:
    return [_Token(match[0], *match.span()) for match in _TOKEN.finditer(text)]


def _opcodes(old: list[_Token], new: list[_Token]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, [t.text for t in old], [t.text for t in new], autojunk=False).get_opcodes()


def _split_by_line(sources: list[_SourceToken | None]) -> list[list[_SourceToken]]:
    """Groups consecutive source tokens by line; raises _NoSource if any other token is between them."""
    known = [source for source in sources if source]
    if len(known) < len(sources) or any(two.number != one.number + 1 for one, two in pairwise(known)):
        raise _NoSource
    return [list(run) for _, run in groupby(known, key=lambda source: source.origin)]


def _edit_line(woven: PackageSources, origin: Origin, edits: list[tuple[int, int, str]], by: int) -> Replacement:
    line = woven.text_at(origin)
    for start, end, text in sorted(edits, reverse=True):
        line = line[:start] + text + line[end:]
    first, *others = [part.rstrip() for part in line.split("\n")]
    return Replacement(origin.path, origin.line - 1, origin.line, (first, *shift(others, by)) if line.strip() else ())
