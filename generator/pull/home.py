"""Where a hunk could go: the changes of source lines that may make it, the likeliest first. Weaving decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher

from generator.pull.edited import Hunk
from generator.pull.sources import Change, Woven, indent, shifted
from generator.pull.tokens import Unplaced, by_token

MOST = 3000  # pairs of lines that are compared; a larger hunk goes as a block or line by line
GAP = 0.35  # two lines that are less alike than twice this are no pair


def candidates(woven: Woven, hunk: Hunk) -> list[list[Change]]:
    """Ways to make a hunk."""
    ways: list[Callable[[], list[Change]]] = [
        lambda: _block(woven, hunk),
        lambda: _by_line(woven, hunk, below=True),
        lambda: _by_line(woven, hunk, below=False),
        lambda: by_token(woven, hunk),
        lambda: by_token(woven, hunk, after=True),
    ]
    found: list[list[Change]] = []
    for way in ways:
        try:
            changes = list(dict.fromkeys(way()))
        except Unplaced:
            continue
        if changes and changes not in found:
            found.append(changes)
    return found


def _block(woven: Woven, hunk: Hunk) -> list[Change]:
    """The lines are a copy of lines that stand together in one fragment."""
    sources = [woven.copied(hunk.path, row) for row in range(hunk.start, hunk.stop)]
    if not sources or None in sources:
        raise Unplaced
    path, first = sources[0] or ("", 0)
    if sources != [(path, first + n) for n in range(len(sources))]:
        raise Unplaced
    pairs = zip(woven.lines[hunk.path][hunk.start : hunk.stop], woven.source(path)[first:], strict=False)
    moves = {indent(there) - indent(here) for here, there in pairs if here.strip()}
    if len(moves) > 1:
        raise Unplaced
    return [Change(path, first, first + len(sources), shifted(hunk.lines, moves.pop() if moves else 0))]


def _by_line(woven: Woven, hunk: Hunk, below: bool) -> list[Change]:
    """Each line goes where the line went that it replaces.

    Args:
        below: whether an inserted line stands below the line before it, or else above the line after it.
    """
    changes: list[Change] = []
    before = woven.lines[hunk.path][hunk.start : hunk.stop]
    gone = set(range(hunk.start, hunk.stop))
    for old, new in _pairs(before, list(hunk.lines)):
        row, lines = hunk.start + old.start, tuple(hunk.lines[new.start : new.stop])
        if not old:
            changes.append(_inserted(woven, hunk.path, row, lines, below))
        elif source := woven.copied(hunk.path, row):
            by = indent(woven.source(source[0])[source[1]]) - indent(woven.lines[hunk.path][row])
            changes.append(Change(source[0], source[1], source[1] + 1, shifted(lines, by)))
        elif new:
            changes += by_token(woven, Hunk(hunk.path, row, row + 1, lines, hunk.at), after=not below)
        else:
            changes += _deleted(woven, hunk.path, row, gone)
    return changes


def _pairs(before: list[str], after: list[str]) -> Iterator[tuple[range, range]]:
    """Which line became which: pairs of one line each, or none and several, or one and none."""
    if len(before) == len(after) or len(before) * len(after) > MOST:
        count = min(len(before), len(after))
        yield from ((range(n, n + 1), range(n, n + 1)) for n in range(count))
        yield from ((range(n, n + 1), range(count, count)) for n in range(count, len(before)))
        if count < len(after):
            yield range(count, count), range(count, len(after))
        return
    best: dict[tuple[int, int], tuple[float, str]] = {}
    for i in range(len(before), -1, -1):
        for j in range(len(after), -1, -1):
            ways = [(0.0, "end")] if (i, j) == (len(before), len(after)) else []
            if i < len(before):
                ways.append((best[i + 1, j][0] + GAP, "gone"))
            if j < len(after):
                ways.append((best[i, j + 1][0] + GAP, "new"))
            if i < len(before) and j < len(after):
                alike = SequenceMatcher(None, before[i].strip(), after[j].strip(), autojunk=False).ratio()
                ways.append((best[i + 1, j + 1][0] + 1 - alike, "pair"))
            best[i, j] = min(ways)
    i = j = 0
    while (step := best[i, j][1]) != "end":
        start = j
        while best[i, j][1] == "new":
            j += 1
        if step == "new":
            yield range(i, i), range(start, j)
        else:
            yield range(i, i + 1), range(j, j + (step == "pair"))
            i, j = i + 1, j + (step == "pair")


def _inserted(woven: Woven, path: str, row: int, lines: tuple[str, ...], below: bool) -> Change:
    """Lines put below the source of the row before, or above that of this row."""
    beside = row - 1 if below else row
    if source := woven.copied(path, beside):
        file, number = source
    else:
        origins = woven.origins(path, beside)
        if not origins or not woven.lines[path][beside].strip():
            raise Unplaced
        file, number = origins[-1 if below else 0].path, origins[-1 if below else 0].line - 1
    step = -1 if below else 1
    while 0 < beside < len(woven.lines[path]) - 1 and not woven.lines[path][beside].strip():
        beside += step  # a blank line says nothing of indentation
    spot = woven.copied(path, beside)
    there = woven.source(file)[spot[1]] if spot and spot[0] == file else woven.source(file)[number]
    by = indent(there) - indent(woven.lines[path][beside]) if there.strip() else 0
    number += below
    return Change(file, number, number, shifted(lines, by))


def _deleted(woven: Woven, path: str, row: int, gone: set[int]) -> list[Change]:
    """The source lines of which nothing is left, of a line that is no copy."""
    changes = []
    text = woven.lines[path][row]
    for origin in woven.origins(path, row):
        rows = {row}
        for step in (-1, 1):
            beside = row + step
            while origin in woven.origins(path, beside):
                rows.add(beside)
                beside += step
        there = woven.source(origin.path)[origin.line - 1]
        text = " ".join(woven.lines[path][n] for n in sorted(rows))
        if rows <= gone and SequenceMatcher(None, text, there.strip(), autojunk=False).ratio() > 0.5:
            changes.append(Change(origin.path, origin.line - 1, origin.line, ()))
    if not changes:
        raise Unplaced
    return changes
