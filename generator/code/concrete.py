"""Reads a text as libcst's tree, and prints such a tree; every token keeps the source line that it comes from.

A tree never changes. Edits (edits.py) make another one, in which most nodes are those of the first: a table knows where
the tokens of each node come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import libcst as cst

from generator.code.printing import NO_CAUSES, Body, Causes, Lines, Origins, Printer, Reader
from generator.code.traced import Origin, Traced
from generator.code.tree import HEAD, is_indented
from generator.errors import LoomError

Statement = Any  # cst.SimpleStatementLine or cst.BaseCompoundStatement: libcst's own annotations are wider
_MOST_TREES = 2_000  # that are remembered: some 200 MB


class Concrete:
    """Statements as libcst's tree.

    Attributes:
        body: the statements, with the comments around them.
        indent: the blanks in front of them.
        step: the blanks that a block has more.
        ends_in_newline: whether the last line ends in one; an expression alone need not.
    """

    def __init__(self, text: Traced, body: Body, indent: str, step: str, ends_in_newline: bool):
        self._text, self.body, self.indent, self.step = text, body, indent, step
        self.ends_in_newline = ends_in_newline

    @cached_property
    def notes(self) -> Reader:
        """Where the nodes stand, and where their tokens come from."""
        reader = Reader(self._text, self.indent, self.step)
        reader.print(self.body)
        return reader

    @classmethod
    def read(cls, text: Traced) -> Concrete:
        """Parses a text.

        Raises:
            LoomError: libcst cannot read it, or would not print it as it is.
        """
        indented = is_indented(text.text)
        try:
            module = _own_header(cst.parse_module(HEAD + text.text if indented else text.text))
        except cst.ParserSyntaxError as error:
            where = str(text.rows(row := error.raw_line - 1 - indented, row + 1).origin_at(0))
            raise LoomError("libcst cannot read this line", where, "Write it in another way.") from None
        body: Any = module.body[0].body if indented else module  # type: ignore[union-attr]
        indent = (body.indent or module.default_indent) if indented else ""
        concrete = cls(text, body, indent, module.default_indent, module.has_trailing_newline)
        if not concrete.notes.is_at_end:
            remedy = "Take out byte order marks and form feeds."
            raise LoomError("libcst would not keep this text as it is", str(text.origin_at(0)), remedy)
        return concrete

    @property
    def statements(self) -> dict[cst.CSTNode, Lines]:
        """The lines of each statement."""
        return self.notes.statements if self.ends_in_newline else {}

    def printed(
        self,
        body: Body | None = None,
        origins: Origins | None = None,
        causes: Causes = NO_CAUSES,
        statements: Mapping[cst.CSTNode, Lines] | None = None,
        indent: str = "",
    ) -> Traced:
        """Returns the text of the statements, or of others in their place.

        Args:
            origins: those of the tokens of `body`.
            causes: node without origins -> the line that caused it and what it holds.
            statements: those that are printed as their lines where they have not moved.
            indent: the blanks in front of the statements, '' for those that there are.
        """
        body, indent = body or self.body, indent or self.indent
        printer = Printer(origins or self.notes.origins, causes, statements or self.statements, indent, self.step)
        printer.print(body)
        text = printer.traced() if self.ends_in_newline else printer.traced()[:-1]
        _remember(text, Concrete(text, body, indent, self.step, self.ends_in_newline))
        return text


def read_concrete(text: Traced) -> Concrete:
    """Returns the tree of a text; texts that were printed lately are not parsed again."""
    if text not in _known or _known[text].notes.has_copies:  # a node that stands twice has no one place
        _remember(text, Concrete.read(text))
    return _known[text]


_known: dict[Traced, Concrete] = {}


def _remember(text: Traced, concrete: Concrete) -> None:
    if len(_known) >= _MOST_TREES:
        for old in list(_known)[: _MOST_TREES // 2]:
            del _known[old]
    _known[text] = concrete


def indent(text: Traced, width: int) -> Traced:
    """Returns statements moved so that the first one begins at column `width`; lines inside strings are not moved."""
    first = next((line for line in text.text.split("\n") if line.strip()), "")
    if not first or len(first) - len(first.lstrip(" ")) == width:
        return text
    return read_concrete(text).printed(indent=" " * width)


def _own_header(module: cst.Module) -> cst.Module:
    """Returns a module in which the comments at the top belong to the first statement, as those of all others do."""
    if not module.body or not module.header:
        return module
    first: Any = module.body[0]
    first = first.with_changes(leading_lines=(*module.header, *first.leading_lines))
    return module.with_changes(header=(), body=(first, *module.body[1:]))


def first_origin(node: cst.CSTNode, origins: Origins) -> Origin:
    """Returns the line on which a statement begins, below its comments and decorators."""
    above = {*getattr(node, "leading_lines", ()), *getattr(node, "decorators", ())}
    queue = [node]
    while queue:
        part = queue.pop()
        if part in origins and not isinstance(part, (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace)):
            return origins[part][0][0]
        queue += [child for child in reversed(part.children) if child not in above]
    raise AssertionError("a statement without tokens")


def attached(lines: Iterable[cst.EmptyLine]) -> tuple[cst.EmptyLine, ...]:
    """Returns the comments right above a statement: those below the last blank line."""
    found: list[cst.EmptyLine] = []
    for line in lines:
        found = [*found, line] if line.comment else []
    return tuple(found)
