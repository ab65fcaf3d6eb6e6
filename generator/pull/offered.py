"""What join points offer before and after a change: what another fragment reads there must stay."""

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
    for name in after.fragments():
        path = f"fragments/{name}.py"
        if path in before.files and before.files[path] != after.files[path]:
            kept = _offered(after.fragment(name))
            for point, names in _offered(before.fragment(name)).items():
                if lost := names - kept.get(point, set()):
                    _check_readers(after, point, lost)


def _check_readers(library: Library, point: str, lost: set[str]) -> None:
    for name in library.fragments():
        if point not in library.files[f"fragments/{name}.py"]:
            continue
        for splice in library.fragment(name).splices:
            if splice.point == point and (missed := sorted(lost & set(splice.reads))):
                raise LoomError(
                    f"{name} reads {', '.join(missed)} at the point {point!r}, where it would not be any more",
                    str(splice.origin),
                    "Keep the name there, or change that splice too.",
                )


def _offered(fragment: Fragment) -> dict[str, set[str]]:
    """The names that each point shows and that its function has."""
    points = [point for d in fragment.definitions for point in find_points(d.name, d.text).values()]
    return {point.name: _names(point) for point in points}


def _names(point: Point) -> set[str]:
    bound = set[str]()
    for host in point.hosts:
        bound |= bound_names(*host.body) | {parameter.arg for parameter in parameters(host)}
    return {name for name in point.shown if name in bound} | {n for n in point.named if point.names_in(n) <= bound}
