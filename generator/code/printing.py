"""Prints libcst's trees by its own printer, and notes where each node stands and where its tokens come from.

This is the one module that uses a class of libcst without a public name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import libcst as cst
from libcst._nodes.internal import CodegenState

from generator.code.traced import Origin, Piece, Pieces, Traced, split_lines

Place = tuple[int, int, int, int]  # line, column, end line and end column, as ast counts them
Origins = dict[cst.CSTNode, list[tuple[Origin, ...]]]  # node -> for each token that it writes itself: that of each line
Causes = Mapping[cst.CSTNode, Origin]
Body = cst.Module | cst.IndentedBlock
NO_CAUSES: Causes = MappingProxyType({})


class Notes(CodegenState):
    """Prints a tree, and notes where each node stands and where its tokens come from."""

    def __init__(self, indent: str, step: str):
        super().__init__(default_indent=step, default_newline="\n")
        self.origins: Origins = {}
        self.places: dict[Place, cst.CSTNode] = {}
        self.lines: dict[int, cst.CSTNode] = {}
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._count = 0
        self.line, self.column = 1 + bool(indent), 0  # ast counts the line above indented statements
        self._node: Any = None  # the one that is being printed
        self._around: list[Any] = []
        self.increase_indent(indent)

    def print(self, body: Body) -> None:
        self.before_codegen(body)
        header: Sequence[cst.EmptyLine] = body.header if isinstance(body, cst.Module) else ()
        for node in (*header, *body.body, *body.footer):
            node._codegen(self)

    @property
    def has_copies(self) -> bool:
        """Whether a node stands in the tree twice."""
        return self._count > len(self.parents)

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._count += 1
        self.parents[node] = self._node
        self._around.append(self._node)
        self._node = node

    def after_codegen(self, node: cst.CSTNode) -> None:
        self._node = self._around.pop()

    def add_indent_tokens(self) -> None:
        self.add_blanks("".join(self.indent_tokens))

    def add_blanks(self, blanks: str) -> None:
        """Notes the indentation of a line."""
        self.column += len(blanks)

    def note(self, value: str, origins: tuple[Origin, ...]) -> None:
        """Notes a token and the origins of its lines."""
        own = self.origins.get(self._node)
        if own is None:
            self.origins[self._node] = [origins]
        else:
            own.append(origins)
        if "\n" in value:
            self.line += value.count("\n")
            self.column, value = 0, value[value.rindex("\n") + 1 :]
        self.column += len(value) if value.isascii() else len(value.encode())

    def record_syntactic_position(self, node: cst.CSTNode, **_: Any) -> Any:
        if isinstance(node, cst.BaseExpression):
            return _Span(self, node)
        if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            self.lines[self.line] = node
        return _NO_SPAN


_NO_SPAN: AbstractContextManager[None] = nullcontext()


class _Span(AbstractContextManager[None]):
    """Notes where an expression begins and ends, without parentheses around it."""

    __slots__ = ("column", "line", "node", "notes")

    def __init__(self, notes: Notes, node: cst.CSTNode):
        self.notes, self.node, self.line, self.column = notes, node, notes.line, notes.column

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.notes.places[self.line, self.column, self.notes.line, self.notes.column] = self.node


class Reader(Notes):
    """Notes the origins of a text that was parsed."""

    def __init__(self, text: Traced, indent: str, step: str):
        super().__init__(indent, step)
        self._pieces, self._ahead = iter(text.pieces), len(text.text)
        self._piece, self._left, self._row = Piece("", Origin("", 1)), 0, 0  # what of the piece is ahead, and its line
        self._here: tuple[Origin, ...] | None = None  # the origin of what is ahead

    def add_blanks(self, blanks: str) -> None:
        super().add_blanks(blanks)
        self._take(blanks)

    def add_token(self, value: str) -> None:
        if not value:
            return
        if "\n" not in value or value == "\n":
            origins = self._origin()
            self._take(value)
        else:
            every = list[Origin]()
            for line in split_lines(value):
                every += self._origin()
                self._take(line)
            origins = tuple(every)
        self.note(value, origins)

    def _origin(self) -> tuple[Origin, ...]:
        if not self._left:
            self._next_piece()
        if self._here is None:
            origin, copied = self._piece.origin, self._piece.copied and self._row
            self._here = (Origin(origin.path, origin.line + self._row) if copied else origin,)
        return self._here

    @property
    def is_at_end(self) -> bool:
        """Whether as much was printed as there is text, but for a newline at the end."""
        return self._ahead in (0, -1)

    def _take(self, part: str) -> None:
        """Goes on by a part of a line."""
        count = len(part)
        self._ahead -= count
        while count > self._left:
            count -= self._left
            if not self._next_piece():
                return
        self._left -= count
        if part.endswith("\n"):
            self._row += 1
            self._here = None

    def _next_piece(self) -> bool:
        piece = next(self._pieces, None)
        if piece is not None:
            self._piece, self._left, self._row, self._here = piece, len(piece.text), 0, None
        return piece is not None


class Printer(Notes):
    """Prints a tree with the origin of each token.

    A node that was read has those of its tokens; what is new has the line that caused it.
    """

    def __init__(self, origins: Origins, causes: Causes, indent: str, step: str):
        self._pieces = Pieces()
        self._blanks = ""
        self._known, self._causes = origins, causes
        self._stack: list[tuple[Sequence[tuple[Origin, ...]], int, Origin | None]] = []
        self._own: Sequence[tuple[Origin, ...]] = ()  # of the node that is being printed
        self._written = 0  # how many of its tokens have been
        self._cause: Origin | None = None
        super().__init__(indent, step)

    def before_codegen(self, node: cst.CSTNode) -> None:
        super().before_codegen(node)
        self._stack.append((self._own, self._written, self._cause))
        self._own, self._written = self._known.get(node, ()), 0
        if node in self._causes:
            self._cause = self._causes[node]

    def after_codegen(self, node: cst.CSTNode) -> None:
        self._node = self._around.pop()
        self._own, self._written, self._cause = self._stack.pop()

    def add_blanks(self, blanks: str) -> None:
        super().add_blanks(blanks)
        self._blanks = blanks

    def add_token(self, value: str) -> None:
        if not value:
            return
        if self._own:
            origins = self._own[min(self._written, len(self._own) - 1)]
        else:
            origins = (self._cause or self._pieces.last,)
        self._written += 1
        self.note(value, origins)
        if self._blanks:
            value, self._blanks = self._blanks + value, ""
        if len(origins) == 1:
            self._pieces.add(value, origins[0])
        else:
            for number, line in enumerate(split_lines(value)):
                self._pieces.add(line, origins[min(number, len(origins) - 1)])

    def traced(self) -> Traced:
        return self._pieces.traced()
