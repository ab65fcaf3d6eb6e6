"""The join points around an edit."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import NamedTuple

from generator.pull.edited import Hunk
from generator.pull.sources import PackageSources

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


class Join(NamedTuple):
    """A join point.

    Attributes:
        shown: names that a splice may read and rebind.
        named: keyword -> the expression that it stands for.
        path: of the fragment that has the point.
        lines: of the statements that it holds, from 1; of the point itself where it holds none.
        function: the lines of the definition around it.
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
        return ", ".join([*self.shown, *self.named]) or "no names"


class Peer(NamedTuple):
    """A splice of a fragment, by its name without the folder, with the names of the host that it rebinds."""

    fragment: str
    point: str
    rebound: frozenset[str]


def joins_around(woven: PackageSources, hunk: Hunk) -> list[Join]:
    """Finds the join points in the function or class around a hunk, the nearest first."""
    path = hunk.path
    if path not in woven.package.origins:
        return []
    nodes = [node for node in ast.walk(ast.parse(woven.package.files[path])) if isinstance(node, _DEFINITIONS)]
    spans = [(node.lineno - 1, node.end_lineno or 0) for node in nodes]
    around = [span for span in spans if span[0] <= hunk.start <= span[1]]
    nearest: dict[str, list[int]] = {}  # of each fragment the lines in the nearest row
    for row in sorted(range(*max(around)) if around else [], key=lambda row: abs(row - hunk.start)):
        origins = woven.origins(path, row)
        nearest = {one.path: [o.line for o in origins if o.path == one.path] for one in origins} | nearest
    joins = [join for source in nearest for join in points_of(source, woven.texts[source])]
    joins = [join for join in joins if nearest[join.path][0] in join.function]
    return sorted(joins, key=lambda join: min(abs(a - b) for a in join.lines for b in nearest[join.path]))


@lru_cache
def points_of(path: str, text: str) -> list[Join]:
    """Finds the points in the text of a fragment."""
    found: dict[str, Join] = {}  # of the definitions around a point, the innermost one comes last
    for outer in (node for node in ast.walk(ast.parse(text)) if isinstance(node, _DEFINITIONS)):
        blocks = {id(node.items[0].context_expr): node for node in ast.walk(outer) if isinstance(node, ast.With)}
        for node in ast.walk(outer):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "point" or not node.args:
                continue
            if not isinstance(node.args[0], ast.Constant):  # another function of this name
                continue
            block = blocks.get(id(node))
            shown = [argument.id for argument in node.args[1:] if isinstance(argument, ast.Name)]
            shown += _stored(block) if block else []
            named = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg}
            body = block.body if block else [node]
            lines = range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
            name, function = ast.literal_eval(node.args[0]), range(outer.lineno, (outer.end_lineno or 0) + 1)
            found[name] = Join(name, tuple(dict.fromkeys(shown)), named, path, lines, block is not None, function)
    return list(found.values())


@lru_cache
def peers_of(path: str, text: str) -> list[Peer]:
    """Finds the splices in the text of a fragment."""
    found = []
    for node in (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)):
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "splice":
                rebound = frozenset(_stored(node)) & {argument.arg for argument in node.args.args}
                name = path.rpartition("/")[2].removesuffix(".py")
                found.append(Peer(name, ast.literal_eval(call.args[0]), rebound))
    return found


def _stored(tree: ast.AST) -> list[str]:
    """The names that statements bind, in the order in which they stand."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return [node.id for node in sorted(names, key=lambda node: (node.lineno, node.col_offset))]
