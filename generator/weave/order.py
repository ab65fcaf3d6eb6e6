"""Orders the splices at a point: as they declare, then as they are selected."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, permutations

from generator.code.bindings import bound_names
from generator.code.tree import TracedTree
from generator.errors import LoomError
from generator.language.parts import Splice


def sort_splices(splices: list[Splice], where: str, first: Sequence[Splice] = ()) -> list[Splice]:
    """Sorts the splices of one point.

    Where no order of two is declared and they rebind a name, one that replaces the statements of the point goes first,
    and one of a user's project last.

    Args:
        splices: in order of selection.
        where: the place of the point.
        first: those that replace the statements of the point.
    """
    if len(splices) < 2:
        return splices
    follows: dict[int, set[int]] = {index: set() for index in range(len(splices))}
    for (index, splice), (other, peer) in permutations(enumerate(splices), 2):
        names = {peer.fragment, peer.fragment.split("/")[-1]}
        if names & set(splice.after) or (peer.fragment == splice.fragment and other < index):
            follows[index].add(other)
        if names & set(splice.before):
            follows[other].add(index)
    try:
        TopologicalSorter(follows).prepare()
    except CycleError as error:
        circle = " -> ".join(splices[index].fragment for index in error.args[1])
        message, remedy = (
            f"the order of splices at {where} goes in a circle",
            f"Drop one of the before/after of {circle}.",
        )
        raise LoomError(f"{message}: {circle}", str(splices[error.args[1][0]].origin), remedy) from None
    _complete_order(splices, follows, where, first)
    sorter = TopologicalSorter({index: sorted(earlier) for index, earlier in follows.items()})
    sorter.prepare()
    result, ready = list[Splice](), list[int]()
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        index = ready.pop(0)
        result.append(splices[index])
        sorter.done(index)
    return result


def _complete_order(
    splices: list[Splice], follows: dict[int, set[int]], where: str, replacing: Sequence[Splice]
) -> None:
    """Orders each two splices that rebind a name and have no declared order; refuses those that have no default."""
    rebound = [rebound_names(splice) for splice in splices]
    for (first, one), (second, other) in combinations(enumerate(splices), 2):
        shared = sorted(rebound[first] & rebound[second])
        if not shared or first in _predecessors(second, follows) or second in _predecessors(first, follows):
            continue
        if (one in replacing) != (other in replacing):
            earlier, later = (first, second) if one in replacing else (second, first)
        elif one.own != other.own:
            earlier, later = (first, second) if other.own else (second, first)
        else:
            raise _undeclared(one, other, shared, splices, where)
        follows[later].add(earlier)


def _undeclared(one: Splice, other: Splice, shared: list[str], splices: list[Splice], where: str) -> LoomError:
    """Returns the error of two splices that rebind a name in no declared order."""
    known = {name for splice in splices for name in (splice.fragment, splice.fragment.split("/")[-1])}
    if other.own:
        remedy = f'Write after="{one.fragment.split("/")[-1]}" or before=... at {other.origin}.'
    else:
        remedy = (
            f'Write under [order] of the architecture: "{other.point}" = ["{one.fragment}", "{other.fragment}"]; or '
        )
        remedy += "the other way round."
    if unknown := {*one.after, *one.before, *other.after, *other.before} - known:
        remedy = f"None of these fragments is {' or '.join(sorted(unknown))}. {remedy}"
    message = f"{one.fragment} ({one.origin}) and {other.fragment} ({other.origin}) both rebind {', '.join(shared)}"
    return LoomError(f"{message} at {where}, in no declared order", str(other.origin), remedy)


def _predecessors(index: int, follows: dict[int, set[int]]) -> set[int]:
    """Returns all splices that one follows."""
    return follows[index].union(*(_predecessors(earlier, follows) for earlier in follows[index]))


def rebound_names(splice: Splice) -> set[str]:
    """Returns the names of its host that a splice rebinds."""
    return bound_names(TracedTree(splice.body).module, comprehensions=False) & set(splice.reads)
