"""Tests that came out one way alone while programs were traced: what decides them may come out otherwise elsewhere.

`if size % parts: raise ...` is passed by in every program that can be traced, so that no jaxpr shows `parts`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from generator.programs.noting import PASSED

Places = frozenset[tuple[int, ...]]  # what was noted of a file: lines, and lines with columns


@lru_cache(maxsize=4096)
def decides(text: str, noted: Places, line: int) -> bool:
    """Whether the statement at a line is, or says by names, how a test of its function came out that did so one way."""
    for function in _outermost(ast.parse(text)):
        if function.lineno <= line <= (function.end_lineno or function.lineno):
            statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
            return any(_decides(node, statements, noted) for node in statements if node.lineno == line)
    return False


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module and of its classes: those inside of them see their names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        elif isinstance(node, ast.stmt):
            yield from _outermost(node)


def _decides(changed: ast.stmt, statements: list[ast.stmt], noted: Places) -> bool:
    if isinstance(changed, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False  # what is in it are statements of their own
    reached, before = _gives(changed), -1
    while len(reached) > before:  # names that follow from it
        before = len(reached)
        for node in statements:
            if _names(node, ast.Load) & reached:
                reached |= _gives(node)
    tests = {id(node): list(_one_way(node, noted)) for node in statements}
    return bool(tests[id(changed)]) or any(names & reached for found in tests.values() for names in found)


def _one_way(node: ast.stmt, noted: Places) -> Iterator[set[str]]:
    """The names in each test of a statement that came out one way."""
    if (node.lineno,) not in noted:
        return
    if isinstance(node, ast.Assert):
        yield _names(node, ast.Load)
    if isinstance(node, (ast.If, ast.While)):
        passed = (node.orelse[0].lineno,) if node.orelse else (node.lineno, PASSED)
        if not {(node.body[0].lineno,), passed} <= noted:
            yield {name for part in ast.walk(node.test) for name in _name(part, ast.Load)}
    for part in _head(node):
        if isinstance(part, ast.IfExp):
            ways = {(way.lineno, way.col_offset) for way in (part.body, part.orelse)}
            if not ways <= noted:
                yield {name for each in ast.walk(part.test) for name in _name(each, ast.Load)}


def _gives(node: ast.stmt) -> set[str]:
    """The names that a statement gives a value, an attribute or an item, or calls a method of."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return set()
    given = _names(node, ast.Store)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        given |= {name for part in ast.walk(node.value.func.value) for name in _name(part, ast.Load)}
    return given


def _names(node: ast.stmt, context: type) -> set[str]:
    """Names and attributes that a statement, without those in it, reads or sets."""
    return {name for part in _head(node) for name in _name(part, context)}


def _name(part: ast.AST, context: type) -> list[str]:
    if isinstance(part, ast.Subscript) and isinstance(part.ctx, context):
        return _name(part.value, ast.Load)  # x[i] = 1 sets x
    if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, context):
        return [part.id if isinstance(part, ast.Name) else part.attr]
    return []


def _head(node: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without the statements in it."""
    waiting: list[ast.AST] = [node]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if not isinstance(child, ast.stmt):
                yield child
                waiting.append(child)
