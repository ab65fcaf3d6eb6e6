"""Prints libcst's trees by its own printer, and notes where each node stands and where its tokens come from.

This is the one module that uses a class of libcst without a public name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

import libcst as cst
from libcst._nodes.internal import CodegenState

from generator.code.traced import Origin, Pieces, Traced, split_lines

Place = tuple[int, int, int, int]  # line, column, end line and end column, as ast counts them
Origins = dict[cst.CSTNode, list[tuple[Origin, ...]]]  # node -> for each token that it writes itself: that of each line
Causes = Mapping[cst.CSTNode, Origin]
Body = cst.Module | cst.IndentedBlock
NO_CAUSES: Causes = MappingProxyType({})
_COMPOUND = (cst.FunctionDef, cst.ClassDef, cst.If, cst.For, cst.While, cst.With, cst.Try, cst.TryStar, cst.Match)
_STATEMENTS = frozenset({cst.SimpleStatementLine, *_COMPOUND})


class Lines(NamedTuple):
    """The lines of a statement in the text that it was read from, with the comments above it."""

    text: Traced
    start: int
    stop: int
    indent: str  # the blanks in front of it


class _State(CodegenState):
    """Prints statements at an indentation."""

    def __init__(self, indent: str, step: str):
        super().__init__(default_indent=step, default_newline="\n")
        self.increase_indent(indent)

    @property
    def indentation(self) -> str:
        return "".join(self.indent_tokens)

    def print(self, body: Body) -> None:
        self.before_codegen(body)
        for line in body.header if isinstance(body, cst.Module) else ():
            line._codegen(self)
        for statement in body.body:
            self.print_statement(statement)
        for line in body.footer:
            line._codegen(self)

    def print_statement(self, statement: Any) -> None:
        statement._codegen(self)


class Block(cst.IndentedBlock):
    """A block in which something changes: it has those of its statements printed as lines that did not."""

    @classmethod
    def of(cls, block: cst.IndentedBlock) -> Block:
        return cls(block.body, block.header, block.indent, block.footer)

    def _visit_and_replace_children(self, visitor: Any) -> Block:
        return self.of(super()._visit_and_replace_children(visitor))

    def _codegen_impl(self, state: CodegenState) -> None:
        if not isinstance(state, Printer):
            super()._codegen_impl(state)
            return
        self.header._codegen(state)
        state.increase_indent(state.default_indent if self.indent is None else self.indent)
        for statement in self.body:
            state.print_statement(statement)
        for line in self.footer:
            line._codegen(state)
        state.decrease_indent()


class Reader(_State):
    """Prints the tree of a text, and notes where each node stands and the origins of its tokens.

    Attributes:
        origins: those of all tokens.
        places: where an expression stands, without parentheses around it -> the expression.
        lines: line on which a statement or `elif` begins, below its decorators -> the statement.
        parents: node -> the one around it.
        statements: statement -> its lines.
    """

    def __init__(self, text: Traced, indent: str, step: str):
        super().__init__(indent, step)
        self.origins: Origins = {}
        self.places: dict[Place, cst.CSTNode] = {}
        self.lines: dict[int, cst.CSTNode] = {}
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.statements: dict[cst.CSTNode, Lines] = {}
        self._text, self._count = text, 0
        self._first = 1 + bool(indent)  # ast counts the line above indented statements
        self.line, self.column = self._first, 0
        self._node: Any = None  # the one that is being printed
        self._around: list[tuple[Any, int]] = []  # the nodes around it, and the lines on which these begin
        self._ahead = len(text.text)  # characters that are not printed yet
        self._offset = 0  # characters of this line that are
        self._rows = _origins_by_line(text)

    @property
    def is_at_end(self) -> bool:
        """Whether as much was printed as there is text, except a newline at the end."""
        return self._ahead in (0, -1)

    @property
    def has_copies(self) -> bool:
        """Whether a node stands in the tree twice."""
        return self._count > len(self.parents)

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._count += 1
        self.parents[node] = self._node
        self._around.append((self._node, self.line))
        self._node = node

    def after_codegen(self, node: cst.CSTNode) -> None:
        self._node, first = self._around.pop()
        if type(node) in _STATEMENTS and not isinstance(self._node, cst.If):  # an `elif` is no statement
            start, stop = first - self._first, self.line - self._first
            self.statements[node] = Lines(self._text, start, stop, self.indentation)

    def record_syntactic_position(self, node: cst.CSTNode, **_: Any) -> Any:
        if isinstance(node, cst.BaseExpression):
            return _Span(self, node)
        if type(node) in _STATEMENTS:
            self.lines[self.line] = node
        return _NO_SPAN

    def add_indent_tokens(self) -> None:
        self._go_on(self.indentation)

    def add_token(self, value: str) -> None:
        if not value:
            return
        if "\n" not in value[:-1]:
            origins = self._origin()
            self._go_on(value)
        else:
            origins = ()
            for line in split_lines(value):
                origins += self._origin()
                self._go_on(line)
        if self._node in self.origins:
            self.origins[self._node].append(origins)
        else:
            self.origins[self._node] = [origins]

    def _origin(self) -> tuple[Origin, ...]:
        """Returns the origin of what comes next."""
        row = self._rows[self.line - self._first]
        return row[0][1] if len(row) == 1 else next(origin for start, origin in reversed(row) if start <= self._offset)

    def _go_on(self, part: str) -> None:
        """Goes on by a part of a line."""
        self._ahead -= len(part)
        if part.endswith("\n"):
            self.line, self.column, self._offset = self.line + 1, 0, 0
        else:
            self.column += len(part) if part.isascii() else len(part.encode())
            self._offset += len(part)


def _origins_by_line(text: Traced) -> list[list[tuple[int, tuple[Origin, ...]]]]:
    """Returns the origins of each line, each with the number of characters before it."""
    rows, start = [list[tuple[int, tuple[Origin, ...]]]()], 0
    for piece in text.pieces:
        for row, part in enumerate(piece.text.split("\n")):
            if row:
                rows.append([])
                start = 0
            rows[-1].append((start, (piece.of_row(row),)))
            start += len(part)
    return rows


_NO_SPAN: AbstractContextManager[None] = nullcontext()


class _Span(AbstractContextManager[None]):
    """Notes where an expression begins and ends, without parentheses around it."""

    __slots__ = ("column", "line", "node", "reader")

    def __init__(self, reader: Reader, node: cst.CSTNode):
        self.reader, self.node, self.line, self.column = reader, node, reader.line, reader.column

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.reader.places[self.line, self.column, self.reader.line, self.reader.column] = self.node


class Printer(_State):
    """Prints a tree with the origin of each token.

    A node that was read has those of its tokens; what is new has the line that caused it. A statement that is as it was
    read, and where it was, is printed as its lines.
    """

    def __init__(
        self, origins: Origins, causes: Causes, statements: Mapping[cst.CSTNode, Lines], indent: str, step: str
    ):
        super().__init__(indent, step)
        self._known, self._causes, self._statements = origins, causes, statements
        self._pieces = Pieces()
        self._blanks = ""
        self._stack: list[tuple[Sequence[tuple[Origin, ...]], int, Origin | None]] = []
        self._own: Sequence[tuple[Origin, ...]] = ()  # of the node that is being printed
        self._written = 0  # how many of its tokens have been
        self._cause: Origin | None = None

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._stack.append((self._own, self._written, self._cause))
        self._own, self._written = self._known.get(node, ()), 0
        if node in self._causes:
            self._cause = self._causes[node]

    def after_codegen(self, node: cst.CSTNode) -> None:
        self._own, self._written, self._cause = self._stack.pop()

    def print_statement(self, statement: Any) -> None:
        lines = self._statements.get(statement)
        if lines is None or lines.indent != self.indentation:
            statement._codegen(self)
            return
        for piece in lines.text.rows(lines.start, lines.stop).pieces:
            for row, line in enumerate(split_lines(piece.text)):
                self._pieces.add(line, piece.of_row(row))

    def add_indent_tokens(self) -> None:
        self._blanks = self.indentation

    def add_token(self, value: str) -> None:
        if not value:
            return
        if self._own:
            origins = self._own[min(self._written, len(self._own) - 1)]
        else:
            origins = (self._cause or self._pieces.last,)
        self._written += 1
        if self._blanks:
            value, self._blanks = self._blanks + value, ""
        if len(origins) == 1:
            self._pieces.add(value, origins[0])
        else:
            for number, line in enumerate(split_lines(value)):
                self._pieces.add(line, origins[min(number, len(origins) - 1)])

    def traced(self) -> Traced:
        return self._pieces.traced()
