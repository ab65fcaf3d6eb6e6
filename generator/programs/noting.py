"""Notes which statements of functions run: imports the modules of a folder with a call before each of them.

A program that is traced says nothing about a statement that did not run, nor about a branch of an expression that was
not taken: these are noted too. (sys.settrace would take as long as tracing, and know of no branches.)
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import PathEntryFinder
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any

NOTE = "__gen_ran__"
PASSED = -1  # in place of a column: of an `if` or `while` without an `else`, that its body was passed by


def note_statements(folder: str) -> set[tuple]:
    """The set to which statements of all modules below a folder that are imported from now on add themselves.

    Each as the path of its file in the folder, and its first line; a branch of an expression has its column too.
    """
    ran: set[tuple] = set()
    setattr(builtins, NOTE, ran.add)
    sys.dont_write_bytecode = True

    class Loader(SourceFileLoader):
        def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
            tree = ast.parse(data)
            _note(tree, Path(path).relative_to(folder).as_posix())
            return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    finder = FileFinder.path_hook((Loader, [".py"]))

    def below(path: str) -> PathEntryFinder:
        if not f"{path}/".startswith(f"{folder}/"):
            raise ImportError
        return finder(path)

    sys.path_hooks.insert(0, below)
    sys.path_importer_cache.clear()
    return ran


@contextmanager
def unnoted() -> Iterator[None]:
    """For what has to run before a program can be traced, and is in none: statements that run here are not noted."""
    note = getattr(builtins, NOTE, None)
    setattr(builtins, NOTE, lambda place: None)
    try:
        yield
    finally:
        setattr(builtins, NOTE, note)


def _note(tree: ast.Module, path: str) -> None:
    functions = [x for x in ast.walk(tree) if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef))]
    expressions = {id(x): x for function in functions for x in ast.walk(function)}
    blocks = {id(block): block for function in functions for block in _blocks(function)}
    for node in expressions.values():
        if isinstance(node, (ast.If, ast.While)) and not node.orelse:
            node.orelse = [_at(ast.Expr(_call(path, node.lineno, PASSED)), node.lineno)]
        for name, value in branches(node):
            if isinstance(value, list):
                setattr(node, name, value[:1] + [_noted(x, path) for x in value[1:]])
            else:
                setattr(node, name, _noted(value, path))
    for block in blocks.values():
        noted: list[ast.stmt] = []
        for number, statement in enumerate(block):
            docstring = number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not docstring:
                noted.append(_at(ast.Expr(_call(path, statement.lineno)), statement.lineno))
            noted.append(statement)
        block[:] = noted


def branches(node: ast.AST) -> list[tuple[str, Any]]:
    """The fields of an expression with what need not be computed when it is."""
    if isinstance(node, ast.IfExp):
        return [("body", node.body), ("orelse", node.orelse)]
    if isinstance(node, ast.Lambda):
        return [("body", node.body)]
    return [("values", node.values)] if isinstance(node, ast.BoolOp) else []


def _call(*place: Any) -> ast.expr:
    return ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(place)], [])  # type: ignore[arg-type]


def _noted(value: ast.expr, path: str) -> ast.expr:
    """An expression that is noted when it is computed: a note is None."""
    return _at(ast.BoolOp(ast.Or(), [_call(path, value.lineno, value.col_offset), value]), value.lineno)


def _at(new: Any, line: int) -> Any:
    """A new node with a place."""
    new.lineno = new.end_lineno = line
    new.col_offset = new.end_col_offset = 0
    return ast.fix_missing_locations(new)


def _blocks(function: ast.AST) -> list[list[ast.stmt]]:
    """All lists of statements in a function, those of functions and classes in it too."""
    found = []
    for node in ast.walk(function):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and all(isinstance(item, ast.stmt) for item in value):
                found.append(value)
    return found
