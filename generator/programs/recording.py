"""Records which statements of a package run, and how its tests end, while its programs are traced."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from generator.programs.sources import functions_of

recorded: set[tuple[str, bool]] = set()
is_paused = False


def record(place: str, value: Any = True) -> Any:
    """Records that a place ran, and the value of a test there, which it returns."""
    if not is_paused:
        recorded.add((place, bool(value)))
    return value


@contextmanager
def without_recording() -> Iterator[None]:
    """Pauses recording, for code that runs before a program is traced and is in none."""
    global is_paused
    before, is_paused = is_paused, True
    try:
        yield
    finally:
        is_paused = before


class _Recorder(ast.NodeTransformer):
    """Inserts a call of `record` before each statement of a function, and around each test.

    Attributes:
        places: the records that a run of all statements, and of all tests both ways, leaves.
    """

    def __init__(self, name: str):
        self.name = name
        self.places: set[tuple[str, bool]] = set()

    def _call(self, *test: ast.expr) -> ast.expr:
        place = f"{self.name}:{len(self.places)}"
        self.places |= {(place, True), (place, False)} if test else {(place, True)}
        return ast.Call(ast.Name("__record__", ast.Load()), [ast.Constant(place), *test], [])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, [line for statement in value for line in (ast.Expr(self._call()), statement)])
            elif name in ("test", "guard") and value:
                setattr(node, name, self._call(value))
            elif name == "elt" or (name == "body" and isinstance(node, ast.Lambda)):
                setattr(node, name, ast.BoolOp(ast.And(), [self._call(), value]))
        if isinstance(node, ast.comprehension):
            node.ifs = [self._call(test) for test in node.ifs]
        elif isinstance(node, ast.BoolOp):
            node.values[:-1] = [self._call(test) for test in node.values[:-1]]
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            return self._call(node)
        return node


def instrument(folder: Path) -> dict[str, set[tuple[str, bool]]]:
    """Rewrites the modules of a folder so that functions record what runs.

    Returns:
        `path:function` -> the records of a run of all of it.
    """
    builtins.__record__ = record  # type: ignore[attr-defined]
    result: dict[str, set[tuple[str, bool]]] = {}
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        for name, function in functions_of(tree):
            key = f"{path.relative_to(folder).as_posix()}:{name}"
            recorder = _Recorder(f"{key}:{function.lineno}")
            recorder.visit(function)
            result.setdefault(key, set()).update(recorder.places)
        path.write_text(ast.unparse(tree), encoding="utf-8")
    return result
