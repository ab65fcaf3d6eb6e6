"""Changes of some tokens, made to the source lines that the tokens came from.

Where a line is no copy (a value was threaded through it, a setting filled, a name changed, ruff broke it), its tokens
are aligned with those of its source lines, and what changed between them is changed there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from generator.code.traced import Origin
from generator.pull.edited import Hunk
from generator.pull.sources import Change, Woven

WORD = re.compile(r"\w+|[^\w\s]")


class Token(NamedTuple):
    text: str
    start: int
    end: int


class Unplaced(Exception):
    """There is no one place for an edit."""


def tokens(text: str) -> list[Token]:
    return [Token(match[0], *match.span()) for match in WORD.finditer(text)]


def by_token(woven: Woven, hunk: Hunk, after: bool = False) -> list[Change]:
    """The changes of source lines that make a hunk.

    Args:
        after: whether what was inserted stands after the token before it, or else before the one after it.

    Raises:
        Unplaced: a token that changed came from no source line alone.
    """
    rows = [(row, token) for row in range(hunk.start, hunk.stop) for token in tokens(woven.lines[hunk.path][row])]
    text = "\n".join(hunk.lines)
    old, new = [token for _, token in rows], tokens(text)
    homes, renamed = _homes(woven, hunk.path, range(hunk.start, hunk.stop))
    at = [homes.get((row, token.start)) for row, token in rows]
    edits: dict[Origin, list[tuple[int, int, str]]] = {}
    for kind, i, j, k, end in _compare(old, new):
        if kind == "equal":
            continue
        if i < j:
            first, last = at[i], at[j - 1]
            if first is None or last is None or first[0] != last[0] or _others_between(at[i:j], first, last):
                raise Unplaced
            span = first[1].start, last[1].end
            said = text[new[k].start : new[end - 1].end] if k < end else ""
            if not said and i and (before := at[i - 1]) and before[0] == first[0]:
                span = before[1].end, span[1]  # the space before goes too
        else:
            left, right = (at[i - 1] if i else None), (at[i] if i < len(at) else None)
            if right and not (after and left):
                first, span = right, (right[1].start, right[1].start)
                said = text[new[k].start : new[end].start]
            elif left:
                first, span = left, (left[1].end, left[1].end)
                said = text[new[k - 1].end : new[end - 1].end]
            else:
                raise Unplaced
        said = re.sub(r"\w+", lambda word: renamed.get(word[0], word[0]), re.sub(r"\s*\n\s*", " ", said))
        edits.setdefault(first[0], []).append((*span, said))
    if not edits:
        raise Unplaced
    return [_changed(woven, origin, edits[origin]) for origin in edits]


def _compare(old: list[Token], new: list[Token]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, [t.text for t in old], [t.text for t in new], autojunk=False).get_opcodes()


def _others_between(homes: list, first: tuple[Origin, Token, int], last: tuple[Origin, Token, int]) -> bool:
    """Whether the source has, between two tokens, other ones than the package."""
    return None in homes or [home[2] for home in homes] != list(range(first[2], last[2] + 1))


def _changed(woven: Woven, origin: Origin, edits: list[tuple[int, int, str]]) -> Change:
    line = woven.source(origin.path)[origin.line - 1]
    for start, end, text in sorted(edits, reverse=True):
        line = line[:start] + text + line[end:]
    return Change(origin.path, origin.line - 1, origin.line, (line.rstrip(),) if line.strip() else ())


def _homes(
    woven: Woven, path: str, rows: range
) -> tuple[dict[tuple[int, int], tuple[Origin, Token, int]], dict[str, str]]:
    """Of tokens, by row and column, their source line, the token there and its number; and names that were changed."""
    homes: dict[tuple[int, int], tuple[Origin, Token, int]] = {}
    renamed: dict[str, str] = {}
    for origin in dict.fromkeys(origin for row in rows for origin in woven.origins(path, row)):
        low, high = rows.start, rows.stop
        while origin in woven.origins(path, low - 1):
            low -= 1
        while origin in woven.origins(path, high):
            high += 1
        made = [
            (row, token)
            for row in range(low, high)
            for token in tokens(woven.lines[path][row])
            if _origin(woven, path, row, token.start) == origin
        ]
        there = tokens(woven.source(origin.path)[origin.line - 1])
        for kind, i, j, k, end in _compare([token for _, token in made], there):
            for n in range(j - i if kind == "equal" else 0):
                row, token = made[i + n]
                homes[row, token.start] = origin, there[k + n], k + n
            if kind == "replace" and (j - i, end - k) == (1, 1) and made[i][1].text.isidentifier():
                renamed[made[i][1].text] = there[k].text
    return homes, renamed


def _origin(woven: Woven, path: str, row: int, column: int) -> Origin:
    segments = woven.package.origins[path][row]
    return segments[max(bisect_right([start for start, _ in segments], column) - 1, 0)][1]
