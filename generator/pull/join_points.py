"""Finds the join points around an edit, and refuses a change that removes a name which a splice reads at one."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

from generator.code.bindings import bound_names
from generator.code.tree import parameters
from generator.errors import LoomError
from generator.language.fragment import Fragment, parse_fragment
from generator.pull.edits import Hunk
from generator.pull.sources import PackageSources
from generator.recipe.library import Library
from generator.weave.points import Point, find_points, find_points_of

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


def join_points_near(woven: PackageSources, hunk: Hunk) -> list[Point]:
    """Returns the join points in the function or class around a hunk, the nearest first."""
    path = hunk.path
    if path not in woven.package.origins:
        return []
    nodes = [node for node in ast.walk(ast.parse(woven.package.files[path])) if isinstance(node, _DEFINITIONS)]
    spans = [(node.lineno - 1, node.end_lineno or 0) for node in nodes]
    around = [span for span in spans if span[0] <= hunk.start <= span[1]]
    nearest: dict[str, list[int]] = {}  # fragment -> its lines in the row that is nearest to the hunk
    for row in sorted(range(*max(around)) if around else [], key=lambda row: abs(row - hunk.start)):
        origins = woven.origins(path, row)
        nearest = {one.path: [o.line for o in origins if o.path == one.path] for one in origins} | nearest
    points = [(source, point) for source in nearest for point in _points_in(source, woven.texts[source])]
    points = [(path, point) for path, point in points if nearest[path][0] in _function_lines(point)]
    points.sort(key=lambda pair: min(abs(a - b) for a in lines_of(pair[1]) for b in nearest[pair[0]]))
    return [point for _, point in points]


@lru_cache
def _points_in(path: str, text: str) -> list[Point]:
    """Returns the join points in the text of a fragment, those in its splices included."""
    return list(find_points_of(parse_fragment(path, text)))


def lines_of(point: Point) -> range:
    """Returns the lines of a fragment, from 1, that the statements in the block of a point are, or the call itself."""
    return _lines(point, point.block[0], point.block[-1])


def _function_lines(point: Point) -> range:
    """Returns the lines of the innermost definition around a point."""
    around: Any = point.hosts[-1] if point.hosts else point.owner
    return _lines(point, around, around.body[-1])


def _lines(point: Point, first: ast.AST, last: ast.stmt) -> range:
    start, stop = (point.source.origin(node).line for node in (first, last))
    return range(start, stop + (last.end_lineno or 0) - last.lineno + 1)


def check_shown_names(before: Library, after: Library) -> None:
    """Refuses a change that removes a name from a join point if a fragment of the library reads it there.

    No package need select that fragment: it would fail in the first one that does.
    """
    removed: dict[str, set[str]] = {}
    for name in after.fragments():
        path = f"fragments/{name}.py"
        if path in before.files and before.files[path] != after.files[path]:
            kept = _names_by_point(after.fragment(name))
            shown = _names_by_point(before.fragment(name))
            removed |= {point: missing for point in shown if (missing := shown[point] - kept.get(point, set()))}
    for name in after.fragments():
        if any(point in after.files[f"fragments/{name}.py"] for point in removed):
            for splice in after.fragment(name).splices:
                if lost := sorted(removed.get(splice.point, set()) & set(splice.reads)):
                    read = f"reads {', '.join(lost)} at the point {splice.point!r}, where it would not be any more"
                    remedy = "Keep the name there, or change that splice too."
                    raise LoomError(f"{name} {read}", str(splice.origin), remedy)


def _names_by_point(fragment: Fragment) -> dict[str, set[str]]:
    """Returns, for each join point, the names that it shows and that its function binds."""
    points = [point for d in fragment.definitions for point in find_points(d.name, d.text).values()]
    return {point.name: _bound_names_shown(point) for point in points}


def _bound_names_shown(point: Point) -> set[str]:
    bound = set[str]()
    for host in point.hosts:
        bound |= bound_names(*host.body) | {parameter.arg for parameter in parameters(host)}
    return {name for name in point.shown if name in bound} | {n for n in point.named if point.names_in(n) <= bound}
