"""Edits as splices of a fragment of one's own: at which join point each could stand, with which statements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from generator.code.names import as_block, bound_names
from generator.code.syntax import Source
from generator.code.traced import Traced
from generator.language.fragment import Fragment
from generator.pull.edited import Hunk
from generator.pull.joins import Join, Marked, Place, widened
from generator.pull.sources import indent, shifted
from generator.weave.order import rebound_names


@dataclass(frozen=True)
class Peer:
    """A splice of another fragment.

    Attributes:
        lines: of the fragment's file, from 1.
        rebinds: names of the host.
    """

    fragment: str
    path: str
    lines: range
    rebinds: frozenset[str]


Peers = dict[str, list[Peer]]  # by the name of the point


@dataclass(frozen=True)
class Graft:
    """Statements for a join point.

    Attributes:
        lines: without indentation.
        hunks: what they make, each with those that stand in the same block.
        above, below: the splices of other fragments between which they stand.
        replaced: the statements of the point that go, none where they stay.
    """

    join: Join
    lines: tuple[str, ...]
    hunks: tuple[Hunk, ...]
    above: tuple[Peer, ...] = ()
    below: tuple[Peer, ...] = ()
    replaced: tuple[str, ...] = ()

    def block(self) -> Source:
        """The statements as the weaver reads them."""
        return as_block(Traced.copy("".join(f"{line}\n" for line in shifted(self.lines, 4)), ""))

    def orders(self) -> list[tuple[str, str]]:
        """Names for after= and before=: those that the weaver demands, or else all."""
        bound = bound_names(self.block().module, comprehensions=False)
        demanded = tuple(_names(peer for peer in side if peer.rebinds & bound) for side in (self.above, self.below))
        every = _names(self.above), _names(self.below)
        return [(after, before) for after, before in dict.fromkeys([demanded, every])]


def _names(peers: Iterable[Peer]) -> str:
    return " ".join(dict.fromkeys(peer.fragment.split("/")[-1] for peer in peers))


def peers_of(fragments: Iterable[Fragment]) -> Peers:
    """The splices of fragments by point."""
    found: Peers = {}
    for fragment in fragments:
        for splice in fragment.splices:
            first = splice.body.origin_at(0).line
            lines = range(first, first + splice.body.text.count("\n"))
            peer = Peer(fragment.name, fragment.path, lines, frozenset(rebound_names(splice)))
            found.setdefault(splice.point, []).append(peer)
    return found


def grafts(marked: Marked, woven: Sequence[str], hunks: Sequence[Hunk], peers: Peers) -> Iterator[Graft]:
    """Ways to make hunks of one file by one splice: statements more first, then other statements of a block.

    Args:
        woven: the lines of the file.
        hunks: one, or several that stand in one block.
    """
    laid = [_trimmed(marked, *_laid(marked, woven, hunk)) for hunk in hunks]
    if len(laid) == 1:
        for place in marked.places:
            if not place.join.is_block:
                yield from _beside(marked, place, laid[0], hunks[0], peers.get(place.join.name, []))
    first, last = min(start for start, _, _ in laid), max(stop for _, stop, _ in laid)
    blocks = [place for place in marked.places if place.join.is_block and place.start <= first and last <= place.stop]
    for place in sorted(blocks, key=lambda place: place.stop - place.start):
        mine = peers.get(place.join.name, [])
        owners = [_owner(marked, row, mine) for row in range(place.start, place.stop)]
        left = [place.start + n for n, owner in enumerate(owners) if owner is None]
        if not _together(left):  # some stand at points of those others
            host = f"fragments/{place.join.host}.py"
            left = [row for row in left if any(path == host for path, _ in marked.sources[row])]
        if left and len(left) < len(owners) and _together(left):  # what others wrap
            inner = Place(place.join, left[0], left[-1] + 1, indent(marked.lines[left[0]]))
            if inner.start <= first and last <= inner.stop:
                yield from _within(marked, inner, laid, hunks, (), tuple(mine))
        yield from _within(marked, place, laid, hunks, tuple(peer for peer in mine if peer in owners), ())


def _together(rows: list[int]) -> bool:
    return rows == list(range(rows[0], rows[-1] + 1)) if rows else True


def _laid(marked: Marked, woven: Sequence[str], hunk: Hunk) -> tuple[int, int, list[str]]:
    """A hunk in the lines of a marked file."""
    start, stop = widened(marked, hunk.start, hunk.stop)
    lines = [*woven[start : hunk.start], *hunk.lines, *woven[hunk.stop : stop]]
    first, last = marked.row(start), marked.row(stop) if stop > start else marked.row(start)
    here = marked.lines[first:last]
    name = re.fullmatch(r"( *)return (\w+)", here[-1]) if here and here != list(woven[start:stop]) else None
    if name and lines and lines[-1].startswith(f"{name[1]}return ") and lines[-1] != here[-1]:
        value = lines[-1].strip().removeprefix("return ")  # `x = f(y)` and `return x` became `return f(y)`
        lines = [*lines[:-1], f"{name[1]}{name[2]} = {value}", here[-1]]
    return first, last, lines


def _trimmed(marked: Marked, start: int, stop: int, lines: list[str]) -> tuple[int, int, list[str]]:
    """The same without the lines at its end that stay."""
    while start < stop and lines and lines[-1] == marked.lines[stop - 1]:
        stop, lines = stop - 1, lines[:-1]
    return start, stop, lines


def _beside(
    marked: Marked, place: Place, laid: tuple[int, int, list[str]], hunk: Hunk, peers: list[Peer]
) -> Iterator[Graft]:
    """What a hunk adds at a point, or above or below what other fragments have there."""
    start, stop, lines = laid
    low = high = place.start
    while low > 0 and _owner(marked, low - 1, peers):
        low -= 1
    while high < len(marked.lines) and _owner(marked, high, peers):
        high += 1
    for gap in sorted(range(max(low, start), min(high, stop) + 1), key=lambda gap: abs(gap - place.start)):
        head, tail = marked.lines[start:gap], marked.lines[gap:stop]
        more = len(lines) - len(head) - len(tail)
        if more <= 0 or lines[: len(head)] != head or lines[len(head) + more :] != tail:
            continue
        above = tuple(dict.fromkeys(o for row in range(low, gap) if (o := _owner(marked, row, peers))))
        below = tuple(dict.fromkeys(o for row in range(gap, high) if (o := _owner(marked, row, peers))))
        said = [line for line in lines[len(head) : len(head) + more] if line.strip()]
        if said and not set(above) & set(below) and min(map(indent, said)) == place.indent == indent(said[0]):
            added = shifted(lines[len(head) : len(head) + more], -place.indent)
            if _is_python(added):
                yield Graft(place.join, added, (hunk,), above, below)


def _within(
    marked: Marked,
    place: Place,
    laid: list[tuple[int, int, list[str]]],
    hunks: Sequence[Hunk],
    above: tuple[Peer, ...],
    below: tuple[Peer, ...],
) -> Iterator[Graft]:
    """The statements of a block with hunks made: around `proceed()` where the block's own stay together."""
    old = list(shifted(marked.lines[place.start : place.stop], -place.indent))
    new = list(old)
    for start, stop, lines in sorted(laid, key=lambda row: row[:2], reverse=True):
        new[start - place.start : stop - place.start] = shifted(lines, -place.indent)
    for at in range(len(new) - len(old) + 1) if new != old else ():
        by = indent(new[at]) - indent(old[0]) if old else 0
        if tuple(new[at : at + len(old)]) == shifted(old, by):
            said = (*new[:at], f"{' ' * indent(new[at])}proceed()", *new[at + len(old) :])
            if _is_python(said):
                yield Graft(place.join, said, tuple(hunks), above, below)
                return
    if _is_python(new):
        yield Graft(place.join, tuple(new), tuple(hunks), above, below, tuple(old))


def _is_python(lines: Sequence[str]) -> bool:
    """Whether lines are statements that a function may have."""
    try:
        return bool(ast.parse("\n".join(["async def _():", *shifted(list(lines), 1)])).body)
    except (SyntaxError, ValueError):
        return False


def _owner(marked: Marked, row: int, peers: list[Peer]) -> Peer | None:
    """The splice that a line came from."""
    found = (peer for path, line in marked.sources[row] for peer in peers if peer.path == path and line in peer.lines)
    return next(found, None)
