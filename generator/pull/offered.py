"""The names that join points show before and after a change: those that another fragment reads there must stay."""

from __future__ import annotations

from generator.code.bindings import bound_names
from generator.code.tree import parameters
from generator.errors import LoomError
from generator.language.fragment import Fragment
from generator.recipe.library import Library
from generator.weave.points import Point, find_points


def check_offers(before: Library, after: Library) -> None:
    """Refuses a change that takes a name from a join point which some fragment of the library reads there.

    No package need select that fragment: it would fail in the first one that does.
    """
    lost: dict[str, set[str]] = {}
    for name in after.fragments():
        path = f"fragments/{name}.py"
        if path in before.files and before.files[path] != after.files[path]:
            kept = _shown(after.fragment(name))
            lost |= {point: names - kept.get(point, set()) for point, names in _shown(before.fragment(name)).items()}
    points = [point for point, names in lost.items() if names]
    for name in after.fragments():
        if any(point in after.files[f"fragments/{name}.py"] for point in points):
            for splice in after.fragment(name).splices:
                if missed := sorted(lost.get(splice.point, set()) & set(splice.reads)):
                    read = f"reads {', '.join(missed)} at the point {splice.point!r}, where it would not be any more"
                    remedy = "Keep the name there, or change that splice too."
                    raise LoomError(f"{name} {read}", str(splice.origin), remedy)


def _shown(fragment: Fragment) -> dict[str, set[str]]:
    """The names that each point shows and that its function has."""
    points = [point for d in fragment.definitions for point in find_points(d.name, d.text).values()]
    return {point.name: _names(point) for point in points}


def _names(point: Point) -> set[str]:
    bound = set[str]()
    for host in point.hosts:
        bound |= bound_names(*host.body) | {parameter.arg for parameter in parameters(host)}
    return {name for name in point.shown if name in bound} | {n for n in point.named if point.names_in(n) <= bound}
