"""Python texts as trees of libcst, and where nodes stand. Packages have most texts in common, and share their trees."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast

import libcst as cst
from libcst.metadata import CodeRange, PositionProvider

from generator.code.memory import remembered
from generator.code.traced import line_starts


class Tree:
    """A text and its tree, which nothing changes."""

    def __init__(self, text: str):
        self.text, self.module = text, cst.parse_module(text)

    @cached_property
    def positions(self) -> Mapping[cst.CSTNode, CodeRange]:
        """Only computed for texts in which something is looked up: it costs more than parsing.

        What MetadataWrapper gives, without its walk over the tree, which takes as long again.
        """
        provider = PositionProvider()
        provider._gen_impl(self.module)
        return cast(Mapping[cst.CSTNode, CodeRange], provider._computed)

    @cached_property
    def statements(self) -> dict[cst.CSTNode, tuple[int, int, int]]:
        """Offsets of each statement, but those of else and except: of its first decorator, its start and its end.

        From ast, which takes a tenth of the time that libcst takes for the positions of all nodes.
        """
        found: dict[cst.CSTNode, tuple[int, int, int]] = {}

        def visit(statements: Sequence[cst.CSTNode], nodes: list[ast.stmt]) -> None:
            if len(statements) != len(nodes):  # several statements on a line
                return
            for statement, node in zip(statements, nodes, strict=True):
                decorators = getattr(node, "decorator_list", ())
                start, end = self._offset(node.lineno, 0), self._offset(node.end_lineno or 0, node.end_col_offset or 0)
                start += node.col_offset  # indentation has no wide characters
                found[statement] = (self._offset(decorators[0].lineno, 0) if decorators else start, start, end)
                block = getattr(statement, "body", None)
                if isinstance(block, cst.IndentedBlock):
                    visit(block.body, getattr(node, "body", []))

        visit(self.module.body, parse_ast(self.text).body)
        return found

    def _offset(self, line: int, column: int) -> int:
        """The offset of a place that ast gives: a line from 1 and a column in UTF-8 bytes."""
        start = self.line_starts[line - 1]
        if self.text.isascii():
            return start + column
        return start + len(self.text[start : start + column].encode()[:column].decode(errors="ignore"))

    @cached_property
    def line_starts(self) -> list[int]:
        return line_starts(self.text)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Offsets of the node's text, with its parentheses, without leading comments and the newline at the end."""
        if "positions" not in self.__dict__ and node in self.statements:
            return self.statements[node][1:]
        first = last = self.positions[node]
        if isinstance(node, cst.BaseExpression) and node.lpar:  # libcst's positions are those inside them
            first, last = self.positions[node.lpar[0]], self.positions[node.rpar[-1]]
        start = self.line_starts[first.start.line - 1] + first.start.column
        return start, self.line_starts[last.end.line - 1] + last.end.column


@remembered
def parse_ast(text: str) -> ast.Module:
    """Python's own tree of a text: made in a tenth of the time, without comments and white space."""
    return ast.parse(text)


@remembered
def parse(text: str) -> Tree:
    """The tree of a text.

    Raises:
        libcst.ParserSyntaxError: the text is not Python.
    """
    return Tree(text)
