"""Collects changes of a text, node by node, and makes them together.

Passes ask ast about a text, and name what they change by nodes of ast; the change itself gets the node of libcst that
stands there, with the changes below it made, and returns another one:

    edits = Edits(source)
    edits.change(call, lambda node: node.with_changes(args=[*node.args, argument]))
    edits.put(statement, [])
    text = edits.made()

Nodes that stay keep the origins of their tokens, and so do nodes that change. What is new has the line that caused it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import dropwhile
from typing import Any

import libcst as cst

from generator.code.concrete import Concrete, Statement, attached, first_origin, read_concrete
from generator.code.printing import Block, Lines, Origins
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, position
from generator.errors import LoomError

Change = Callable[[Any], Any]


class Edits:
    """The changes of one text."""

    def __init__(self, source: TracedTree):
        self.source = source
        self._changes: dict[cst.CSTNode, list[Change]] = {}
        self._statements: dict[cst.CSTNode, Callable[[Any], Sequence[Any]]] = {}
        self._above: dict[cst.CSTNode, list[Statement]] = {}
        self._dropped: set[cst.CSTNode] = set()
        self._causes: dict[cst.CSTNode, Origin] = {}
        self._origins: Origins = {}
        self._lines: dict[cst.CSTNode, Lines] = {}

    @cached_property
    def concrete(self) -> Concrete:
        return read_concrete(self.source.traced)

    def __bool__(self) -> bool:
        return bool(self._changes or self._statements or self._above or self._dropped)

    def find(self, node: ast.AST) -> Any:
        """Returns the node of libcst for an expression, a statement, a parameter or a value in an f-string."""
        try:
            return self._find(node)
        except KeyError:
            remedy = "Write it in a line of its own."
            raise LoomError("this cannot be changed where it stands", self.source.where(node), remedy) from None

    def _find(self, node: ast.AST) -> Any:
        match node:
            case ast.FormattedValue():
                return self._around(node.value, cst.FormattedStringExpression)
            case ast.Tuple(elts=[first, *_]):  # of which ast counts the parentheses, and libcst does not
                return self._around(first, cst.Tuple)
            case ast.arg():
                name = self.concrete.notes.places[
                    *position(node), node.lineno, node.col_offset + len(node.arg.encode())
                ]
                return self.concrete.notes.parents[name]
            case ast.stmt():
                return self.concrete.notes.lines[node.lineno]
        at: Any = node
        return self.concrete.notes.places[*position(at), at.end_lineno, at.end_col_offset]

    def _around(self, node: ast.AST, kind: type[cst.CSTNode]) -> Any:
        found = self.concrete.notes.parents[self.find(node)]
        while not isinstance(found, kind):
            found = self.concrete.notes.parents[found]
        return found

    def parent(self, node: ast.AST) -> cst.CSTNode:
        """Returns the node of libcst around an expression or a statement."""
        return self.concrete.notes.parents[self.find(node)]

    def change(self, node: ast.AST | cst.CSTNode, change: Change) -> None:
        """Changes a node; several changes of one follow each other."""
        found = self.find(node) if isinstance(node, ast.AST) else node
        self._changes.setdefault(found, []).append(change)

    def rename(self, node: ast.AST, name: str, new: str) -> None:
        """Renames a name that a node of any kind reads, binds or declares."""
        self.change(self.name(node, name), lambda written: written.with_changes(value=new))

    def replace(self, node: ast.AST, text: str, cause: Origin | None = None) -> None:
        """Puts an expression in place of one, with the parentheses around it."""
        new = self.expression(text, cause or self.source.origin(node))
        self.change(node, lambda old: self.in_parentheses_of(old, new))

    def put(self, statement: ast.stmt, new: Callable[[Any], Sequence[Any]] | Sequence[Any]) -> None:
        """Puts statements in place of one. The comments above it stay; a block without statements gets a `pass`.

        Args:
            new: the statements, or a function that gets the statement with the changes in it made, and returns them.
        """
        self._statements[self.find(statement)] = new if callable(new) else lambda _: new

    def put_below(self, statement: ast.stmt, new: Sequence[Statement]) -> None:
        """Puts statements below one."""
        self.put(statement, lambda updated: [updated, *new])

    def drop(self, statement: ast.stmt) -> None:
        """Removes a statement, the comments above it and the blank lines below it."""
        self._dropped.add(self.find(statement))

    def put_above(self, statement: ast.stmt, new: Sequence[Statement]) -> None:
        """Puts statements above one and the comments right above that, below those that are there already."""
        self._above.setdefault(self.find(statement), []).extend(new)

    def expression(self, text: str, cause: Origin) -> Any:
        """Returns a new expression."""
        return self.new(cst.parse_expression(text), cause)

    def statement(self, text: str, cause: Origin) -> Statement:
        """Returns a new statement of one line."""
        return self.new(cst.parse_statement(text), cause)

    def new(self, node: Any, cause: Origin) -> Any:
        """Returns a new node, and notes the line that caused it and what in it is new too."""
        self._causes[node] = cause
        return node

    def altered(self, node: Any, **fields: Any) -> Any:
        """Returns a node with other fields, which keeps the origins of its own tokens or its cause."""
        new = node.with_changes(**fields)
        if node in self._origins:
            self._origins[new] = self._origins[node]
        if node in self._causes:
            self._causes[new] = self._causes[node]
        return new

    def in_parentheses_of(self, old: Any, new: Any) -> Any:
        """Returns an expression with the parentheses around another one, inside them its own."""
        return self.altered(new, lpar=(*old.lpar, *new.lpar), rpar=(*new.rpar, *old.rpar)) if old.lpar else new

    def copy(self, text: Traced) -> list[Statement]:
        """Returns statements of another text, which keep their origins."""
        if not text.text:
            return []
        concrete = read_concrete(text)
        self._origins.update(concrete.notes.origins)
        self._lines.update(concrete.statements)
        return list(concrete.body.body)

    def made(self) -> Traced:
        """Returns the text with all changes made."""
        if not self:
            return self.source.traced
        body = self.changed(self.concrete.body)
        return self.concrete.printed(body, self._origins, self._causes, {**self.concrete.statements, **self._lines})

    def text(self, node: ast.AST) -> str:
        """Returns the text of an expression, with the changes in it made and the parentheses around it."""
        return cst.Module([]).code_for_node(self.changed(self.find(node)))

    def changed(self, node: Any) -> Any:
        """Returns a node with the changes in it made."""
        self._origins.update(self.concrete.notes.origins)
        return node.visit(_Transformer(self, {*self._changes, *self._statements, *self._above, *self._dropped}))

    def kept(self, old: cst.CSTNode, new: Any) -> Any:
        """Returns a node after handing it the origins of the one whose place it takes, if it is of its kind."""
        if isinstance(new, type(old)) and new not in self._causes and old in self._origins:
            self._origins.setdefault(new, self._origins[old])
        return new

    def changes_of(self, node: cst.CSTNode) -> Sequence[Change]:
        return self._changes.get(node, ())

    def statements_for(self, node: cst.CSTNode, statement: Any) -> list[Any]:
        """Returns what takes the place of a statement.

        Args:
            node: the statement as it was.
            statement: with the changes in it made.
        """
        put = self._statements.get(node)
        above = self._above.get(node, [])
        if above:
            own = attached(statement.leading_lines)
            before = statement.leading_lines[: len(statement.leading_lines) - len(own)]
            above = [self.below(before, above[0]), *above[1:]]
            statement = self.altered(statement, leading_lines=own)
        if put is None:
            return [*above, statement]
        new = list(put(statement))
        lines = statement.leading_lines if statement not in new else ()
        if new:
            return [*above, self.below(lines, new[0]), *new[1:]]
        return [*above, *lines]

    def below(self, lines: Sequence[cst.EmptyLine], statement: Any) -> Any:
        """Returns a statement with more lines above it."""
        return self.altered(statement, leading_lines=(*lines, *statement.leading_lines)) if lines else statement

    def is_dropped(self, node: cst.CSTNode) -> bool:
        return node in self._dropped

    def without_blanks(self, statement: Any) -> Any:
        """Returns a statement without blank lines above it and its comments."""
        return self.altered(
            statement, leading_lines=[*dropwhile(lambda line: not line.comment, statement.leading_lines)]
        )

    def place_of(self, statement: cst.CSTNode) -> Statement:
        """Returns a `pass` in place of the only statement of a block."""
        return self.new(cst.SimpleStatementLine([cst.Pass()]), first_origin(statement, self._origins))

    def name(self, node: Any, name: str) -> cst.Name:
        """Returns the name that a node reads, binds or declares."""
        match node:
            case ast.Name():
                return self.find(node)
            case ast.arg() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self.find(node).name
        lines = range(node.lineno, node.end_lineno + 1)
        names = [
            found
            for (line, column, *_), found in sorted(self.concrete.notes.places.items(), key=lambda item: item[0])
            if line in lines
            and isinstance(found, cst.Name)
            and found.value == name
            and (line, column) >= position(node)
        ]
        binds = (cst.AsName, cst.MatchAs, cst.MatchStar, cst.MatchMapping, cst.NameItem)
        return next(found for found in names if isinstance(self.concrete.notes.parents[found], binds))


class _Transformer(cst.CSTTransformer):
    """Makes changes, and enters only what has one below it."""

    def __init__(self, edits: Edits, changing: set[cst.CSTNode]):
        super().__init__()
        self._edits, self._changing = edits, changing
        self._entered: set[cst.CSTNode] = set()
        self._old: dict[cst.CSTNode, cst.CSTNode] = {}  # what a node is now -> what it was
        for node in changing:
            around: cst.CSTNode | None = node
            while around is not None and around not in self._entered:
                self._entered.add(around)
                around = edits.concrete.notes.parents.get(around)

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node in self._entered

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        if original_node not in self._entered:
            return updated_node
        new = Block.of(updated_node) if isinstance(updated_node, cst.IndentedBlock) else updated_node
        new = self._edits.kept(original_node, new)
        if isinstance(original_node, (cst.Module, cst.IndentedBlock)):
            new = self._edits.kept(new, self._with_statements(original_node, new))
        for change in self._edits.changes_of(original_node):
            new = self._edits.kept(new, change(new))
        self._old[new] = original_node
        return new

    def _with_statements(self, original: Any, block: Any) -> Any:
        """Returns a block with other statements in place of some; comments above one that goes stay where they are."""
        if self._changing.isdisjoint(original.body):
            return block
        body: list[Any] = []
        above: list[cst.EmptyLine] = []
        is_below_dropped = False
        for statement in block.body:
            old = self._old.get(statement, statement)
            if self._edits.is_dropped(old):
                is_below_dropped = True
                continue
            if is_below_dropped:
                statement, is_below_dropped = self._edits.without_blanks(statement), False
            for new in self._edits.statements_for(old, statement) if old in self._changing else [statement]:
                if isinstance(new, cst.EmptyLine):
                    above.append(new)
                else:
                    body.append(self._edits.below(above, new))
                    above = []
        if not body:
            body, above = [self._edits.below(above, self._edits.place_of(original.body[0]))], []
        return block.with_changes(body=body, footer=(*above, *block.footer))
