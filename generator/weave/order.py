"""The order of splices at one point: what they declare, then the order of selection."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from generator.code.names import as_block, bound_names
from generator.errors import LoomError
from generator.language.parts import Splice


def in_order(splices: list[Splice], where: str) -> list[Splice]:
    """Sorts the splices of one point.

    Args:
        splices: in order of selection.
        where: the place of the point.
    """
    if len(splices) < 2:
        return splices
    sorter: TopologicalSorter[int] = TopologicalSorter({index: () for index in range(len(splices))})
    follows: dict[int, set[int]] = {index: set() for index in range(len(splices))}
    for index, splice in enumerate(splices):
        for other, peer in enumerate(splices):
            if other == index:
                continue
            if peer.fragment == splice.fragment and other < index:  # one fragment's splices keep their order
                follows[index].add(other)
            if {peer.fragment, peer.fragment.split("/")[-1]} & set(splice.after):
                follows[index].add(other)
            if {peer.fragment, peer.fragment.split("/")[-1]} & set(splice.before):
                follows[other].add(index)
    for index, earlier in follows.items():
        sorter.add(index, *sorted(earlier))
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " -> ".join(splices[index].fragment for index in error.args[1])
        remedy = f"Drop one of the before/after of {circle}."
        raise LoomError(
            f"the order of splices at {where} goes in a circle: {circle}", str(splices[error.args[1][0]].origin), remedy
        ) from None
    _demand_order(splices, follows, where)
    result: list[Splice] = []
    ready: list[int] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        index = ready.pop(0)
        result.append(splices[index])
        sorter.done(index)
    return result


def _demand_order(splices: list[Splice], follows: dict[int, set[int]], where: str) -> None:
    rebound = [rebound_names(splice) for splice in splices]
    known = {name for splice in splices for name in (splice.fragment, splice.fragment.split("/")[-1])}
    for first, second in combinations(range(len(splices)), 2):
        shared = sorted(rebound[first] & rebound[second])
        if shared and not (_comes_after(first, second, follows) or _comes_after(second, first, follows)):
            one, other = splices[first], splices[second]
            remedy = f'Write after="{one.fragment.split("/")[-1]}" or before=... at {other.origin}.'
            if unknown := {*one.after, *one.before, *other.after, *other.before} - known:
                remedy = f"None of these fragments is {' or '.join(sorted(unknown))}. {remedy}"
            raise LoomError(
                f"{one.fragment} ({one.origin}) and {other.fragment} ({other.origin}) both rebind "
                f"{', '.join(shared)} at {where}, in no declared order",
                str(other.origin),
                remedy,
            )


def _comes_after(index: int, earlier: int, follows: dict[int, set[int]]) -> bool:
    seen: set[int] = set()
    queue = [index]
    while queue:
        for step in follows[queue.pop()] - seen:
            if step == earlier:
                return True
            seen.add(step)
            queue.append(step)
    return False


def rebound_names(splice: Splice) -> set[str]:
    """The names of its host that a splice rebinds."""
    return bound_names(as_block(splice.body).module, comprehensions=False) & set(splice.reads)
