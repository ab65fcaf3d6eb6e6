"""Finds the join points around an edit, and refuses a change that removes a name which a splice reads at one."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import NamedTuple

from generator.code.bindings import bound_names
from generator.code.tree import parameters
from generator.errors import LoomError
from generator.language.fragment import Fragment
from generator.pull.edits import Hunk
from generator.pull.sources import PackageSources
from generator.recipe.library import Library
from generator.weave.points import Point, find_points

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


class JoinPoint(NamedTuple):
    """A join point in the text of a fragment.

    Attributes:
        shown: names that a splice may read and rebind.
        named: keyword -> the expression that it stands for.
        path: of the fragment that declares the point.
        lines: line numbers, from 1, of the statements in its block, or of the call itself.
        function: line numbers of the innermost definition around it.
    """

    name: str
    shown: tuple[str, ...]
    named: dict[str, str]
    path: str
    lines: range
    is_block: bool
    function: range

    @property
    def shows(self) -> str:
        """Returns the names that it shows, for messages."""
        return ", ".join([*self.shown, *self.named]) or "no names"


def join_points_near(woven: PackageSources, hunk: Hunk) -> list[JoinPoint]:
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
    points = [point for source in nearest for point in _points_in(source, woven.texts[source])]
    points = [point for point in points if nearest[point.path][0] in point.function]
    return sorted(points, key=lambda point: min(abs(a - b) for a in point.lines for b in nearest[point.path]))


@lru_cache
def _points_in(path: str, text: str) -> list[JoinPoint]:
    """Returns the join points in the text of a fragment, those in its splices included."""
    points: dict[str, JoinPoint] = {}  # of the definitions around a point, the innermost one comes last
    for outer in (node for node in ast.walk(ast.parse(text)) if isinstance(node, _DEFINITIONS)):
        blocks = {id(node.items[0].context_expr): node for node in ast.walk(outer) if isinstance(node, ast.With)}
        for node in ast.walk(outer):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "point" or not node.args:
                continue
            if not isinstance(node.args[0], ast.Constant):  # another function of this name
                continue
            block = blocks.get(id(node))
            shown = [argument.id for argument in node.args[1:] if isinstance(argument, ast.Name)]
            shown += sorted(bound_names(*block.body)) if block else []
            named = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg}
            body = block.body if block else [node]
            lines = range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
            name, function = ast.literal_eval(node.args[0]), range(outer.lineno, (outer.end_lineno or 0) + 1)
            points[name] = JoinPoint(name, tuple(dict.fromkeys(shown)), named, path, lines, block is not None, function)
    return list(points.values())


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
