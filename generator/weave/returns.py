"""Writes `return f(y)` for `x = f(y)` and `return x`, which a point stood between."""

from __future__ import annotations

import ast

import libcst as cst

from generator.code.bindings import scopes_of
from generator.code.edits import Edits
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, dotted_name, walk
from generator.weave.points import Point


def return_directly(edits: Edits, point: Point, inside: list[Traced]) -> bool:
    """Writes `return f(y)` for `x = f(y)` and `return x`, if they were separate because of a point alone.

    Either `x = f(y)` is above a point that is left empty, or it is all that remains of `with point(...):`.

    Args:
        inside: the statements in place of the point.
    """
    host, source = point.hosts[-1] if point.hosts else None, point.source
    blocks = (getattr(node, name, None) for node in walk(host) for name in ("body", "orelse")) if host else ()
    block = next((found for found in blocks if isinstance(found, list) and point.statement in found), [])
    index = block.index(point.statement) if point.statement in block else len(block)
    if index + 1 >= len(block) or (inside and (not point.is_block or len(inside[0].lines()) > 1)):
        return False
    first = TracedTree(inside[0]).statements[0] if inside else block[index - 1] if index else None
    last = block[index + 1]
    if not isinstance(first, ast.Assign) or not isinstance(last, ast.Return):
        return False
    name, value = first.targets[0], last.value
    if len(first.targets) > 1 or not isinstance(name, ast.Name) or dotted_name(value) != name.id:
        return False
    scopes = scopes_of(source.tree)
    scope = scopes.inner[point.hosts[-1]]
    uses = [use for use in scopes.occurrences if use.name == name.id and use.binder is scope]
    if name.id in scope.outer or any(use.scope is not scope for use in uses):
        return False  # a function inside reads it
    if block is not point.hosts[-1].body and len(uses) > 2:
        return False  # what is around the block, such as a loop or `finally`, may read it
    if inside:
        (line,) = edits.copy(inside[0])
        edits.put(point.statement, [_as_return(edits, line, source.origin(point.statement))])
    elif _has_comment(edits, point.statement, last):
        return False
    else:
        edits.put(first, lambda line: [_as_return(edits, line, source.origin(last))])
        edits.put(point.statement, [])
    edits.drop(last)
    return True


def _as_return(edits: Edits, line: cst.SimpleStatementLine, cause: Origin) -> cst.SimpleStatementLine:
    """Returns `return f(y)` for `x = f(y)`."""
    (assignment,) = line.body
    value = cst.ensure_type(assignment, cst.Assign).value
    return edits.altered(line, body=[edits.new(cst.Return(value), cause)])


def _has_comment(edits: Edits, point: ast.stmt, last: ast.Return) -> bool:
    """Returns whether a comment stands above a point or the return below it, or beside that."""
    above, below = edits.find(point), edits.find(last)
    lines = (*above.leading_lines, *below.leading_lines, below.trailing_whitespace)
    return any(line.comment for line in lines)
