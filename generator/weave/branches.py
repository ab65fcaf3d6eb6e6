"""Finds the branches in which a splice puts other statements in place of those of a block, and checks its neighbours.

    @splice("Attention.attend")         # model/attention.py: with point("Attention.attend", q, k, v):
    def _(q, k, v, context, pages):
        if pages is None:
            proceed()
        else:                           # the other branch, which shows no k and v
            with point("Attention.cached", q, pages):
                context = attend_cached(q, pages)

Another splice at Attention.attend that goes inside this one holds for its first branch alone. One that goes around it
holds for both, and must not read k and v after the statements: in the other branch these are not all keys and values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from generator.code.bindings import bound_names
from generator.code.caching import cached
from generator.code.tree import TracedTree, called_name, walk
from generator.errors import LoomError
from generator.language.parts import Splice
from generator.weave.order import rebound_names
from generator.weave.points import Point, find_points_in


@dataclass(frozen=True)
class Branch:
    """A branch of a splice that does not proceed: its points, and the names that they show."""

    points: tuple[str, ...]
    shown: frozenset[str]


@cached
def find_branches(splice: Splice) -> tuple[Branch, ...]:
    """Returns the branches of a splice that have points of their own where another branch has `proceed()`."""
    if "proceed(" not in splice.body.text or "point(" not in splice.body.text:
        return ()
    points = find_points_in(splice)
    module = next(iter(points.values())).source.module
    arms = [
        (arm, [other for other in siblings if other is not arm]) for siblings in _find_arms(module) for arm in siblings
    ]
    found = []
    for arm, siblings in arms:
        if any(map(_proceeds, siblings)) and not _proceeds(arm):
            inside = {node for statement in arm for node in walk(statement)}
            names = {name: point for name, point in points.items() if point.statement in inside}
            shown = frozenset(shown for point in names.values() for shown in (*point.shown, *point.named))
            found += [Branch(tuple(names), shown)] if names else []
    return tuple(found)


def check_branches(point: Point, splices: Sequence[Splice], points_of: Mapping[str, set[str]]) -> None:
    """Refuses a splice at a block that would leave out, or misread, a branch of another one.

    Args:
        splices: of the point, in order: each is around those before it.
        points_of: fragment -> the points that it splices at.
    """
    for index, splice in enumerate(splices):
        for branch in find_branches(splice):
            for inner in splices[:index]:
                if rebound_names(inner) and points_of[inner.fragment].isdisjoint(branch.points):
                    raise _only_one_branch(inner, splice, branch, point)
            for outer in splices[index + 1 :]:
                hidden = {*point.shown, *point.named}.intersection(outer.reads) - branch.shown
                if names := _read_late(TracedTree(outer.body).statements, hidden):
                    raise _misread(outer, splice, branch, point, names)


def _find_arms(module: ast.Module) -> Iterator[list[list[ast.stmt]]]:
    """Yields the alternatives of each `if` and `match`."""
    for node in walk(module):
        if isinstance(node, ast.If):
            yield [node.body, node.orelse]
        elif isinstance(node, ast.Match):
            yield [case.body for case in node.cases]


def _proceeds(statements: Iterable[ast.stmt]) -> bool:
    return any(called_name(node) == "proceed" for statement in statements for node in walk(statement))


def _read_late(statements: Sequence[ast.stmt], names: set[str]) -> list[str]:
    """Returns the names that statements from `proceed()` on read, directly or in what was made of them before."""
    made_of = {name: {name} for name in names}  # variable -> the names in it
    late = False
    for statement in statements:
        late |= _proceeds([statement])
        read = [node.id for node in walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        used = {name for variable in read for name in made_of.get(variable, ())}
        if late and used:
            return sorted(used)
        for variable in bound_names(statement) - names if used else ():
            made_of[variable] = used
    return []


def _misread(outer: Splice, splice: Splice, branch: Branch, point: Point, names: list[str]) -> LoomError:
    listed, other = " and ".join(names), branch.points[-1]
    message = (
        f"{outer.fragment} reads {listed} after the statements at {point.where}, and {splice.fragment} "
        f"({splice.origin}) has others in place of these in one branch, at the point {other}, which shows no {listed}: "
        f"there it is not what the statements read"
    )
    remedy = (
        f'Write before="{splice.fragment.split("/")[-1]}" here, and splice at {other} for the other branch: it shows '
        f"{', '.join(sorted(branch.shown))}."
    )
    return LoomError(message, str(outer.origin), remedy)


def _only_one_branch(inner: Splice, splice: Splice, branch: Branch, point: Point) -> LoomError:
    message = (
        f"{inner.fragment} changes {' and '.join(sorted(rebound_names(inner)))} in one branch of {splice.fragment} "
        f"({splice.origin}) alone, where the statements at {point.where} are; in the other one are those of "
        f"{' and '.join(branch.points)}"
    )
    remedy = (
        f"Splice at {branch.points[-1]} too, which shows {', '.join(sorted(branch.shown))}; with proceed() alone if "
        "nothing changes there."
    )
    return LoomError(message, str(inner.origin), remedy)
