"""Rows of a function as statements, by libcst, for a fragment that takes their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import libcst as cst

from generator.code.concrete import read_concrete
from generator.code.traced import Origin, Traced
from generator.errors import LoomError


def parse_rows(rows: Sequence[str]) -> cst.Module | None:
    """Returns rows as statements in no block; None if they are none, or no whole ones."""
    try:
        body: Any = read_concrete(Traced.insert("\n".join(rows), Origin("", 1))).body
    except LoomError:
        return None
    return cst.Module(body.body, footer=body.footer, has_trailing_newline=False) if body.body else None


def _code(node: cst.CSTNode) -> str:
    """Returns the text of a node, of a statement with the comments above it, as if it stood in no block."""
    return cst.Module([]).code_for_node(node)


def _lines(node: cst.CSTNode) -> Iterator[cst.SimpleStatementLine]:
    """Yields the simple statements in a node, in their order."""
    if isinstance(node, cst.SimpleStatementLine):
        yield node
    for child in node.children:
        yield from _lines(child)


def bind_returned(module: cst.Module, name: str) -> cst.Module:
    """Splits the last `return VALUE` into an assignment to a name and a return of it."""
    for line in reversed([*_lines(module)]):
        match line.body:
            case [cst.Return(value=cst.BaseExpression() as value)] if _code(value) != name:
                bound = line.with_changes(body=[cst.Assign([cst.AssignTarget(cst.Name(name))], value)])
                both: Any = cst.FlattenSentinel([bound, cst.parse_statement(f"return {name}")])
                return cst.ensure_type(module.deep_replace(line, both), cst.Module)
    return module


class _WithoutReturn(cst.CSTTransformer):
    def __init__(self, name: str):
        super().__init__()
        self._text = f"return {name}"

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: Any) -> Any:
        is_returned = [_code(part) for part in updated_node.body] == [self._text]
        return cst.RemoveFromParent() if is_returned else updated_node


def without_return(module: cst.Module, name: str) -> cst.Module:
    """Removes each `return NAME`."""
    return module.visit(_WithoutReturn(name))


class _WithProceed(cst.CSTTransformer):
    def __init__(self, statements: Sequence[cst.CSTNode]):
        super().__init__()
        self._texts = [_code(statement) for statement in statements]
        self._is_put = False

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: Any) -> Any:
        return self._put(updated_node)

    def leave_Module(self, original_node: cst.Module, updated_node: Any) -> Any:
        return self._put(updated_node)

    def _put(self, block: Any) -> Any:
        texts = [_code(statement) for statement in block.body]
        size = len(self._texts)
        for at in range(len(texts) - size + 1):
            if not self._is_put and texts[at : at + size] == self._texts:
                self._is_put = True
                body = [*block.body[:at], cst.parse_statement("proceed()"), *block.body[at + size :]]
                return block.with_changes(body=body)
        return block


def with_proceed(module: cst.Module, statements: cst.Module) -> cst.Module:
    """Puts `proceed()` where some statements stand together, in a block of any depth; once."""
    return module.visit(_WithProceed(statements.body)) if statements.body else module
