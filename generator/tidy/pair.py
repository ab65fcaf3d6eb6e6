"""Two statements, one right below the other, and what rules ask about them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol

import libcst as cst

from generator.code.bindings import Scope, Scopes, scopes_of
from generator.code.edits import Edits
from generator.code.tree import FUNCTIONS, Tree, blocks, children, walk

WIDTH = 120  # columns of a line
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pair:
    """Two statements of a function, of which the first binds one variable.

    Attributes:
        name: the variable.
        value: of the first statement.
        uses: how often the function binds and reads the variable.
        reads: the places where the second statement reads it.
        is_outermost: whether they stand in the block of the function itself.
    """

    tree: Tree
    first: ast.Assign
    second: ast.stmt
    name: str
    value: ast.expr
    uses: int
    reads: tuple[ast.Name, ...]
    is_outermost: bool

    @classmethod
    def all(cls, tree: Tree) -> list[Pair]:
        """Returns the pairs of a text."""
        scopes = scopes_of(tree)
        return [
            pair
            for function in walk(tree.module)
            if isinstance(function, FUNCTIONS)
            for block in _own_blocks(function)
            for first, second in pairwise(block)
            if (pair := cls._of(tree, scopes, scopes.inner[function], first, second, block is function.body))
        ]

    @classmethod
    def _of(
        cls, tree: Tree, scopes: Scopes, scope: Scope, first: ast.stmt, second: ast.stmt, is_outermost: bool
    ) -> Pair | None:
        match first:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                uses = [use for use in scopes.occurrences if use.name == name and use.binder is scope]
                if name in scope.outer or any(use.scope is not scope for use in uses):
                    return None  # a function inside reads it
                reads = [node for node in walk(second) if isinstance(node, ast.Name) and node.id == name]
                reads = [node for node in reads if isinstance(node.ctx, ast.Load)]
                return cls(tree, first, second, name, value, len(uses), tuple(reads), is_outermost)
        return None

    @property
    def is_rebound(self) -> bool:
        """Whether the second statement binds the variable anew, and nothing else."""
        match self.second:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name == self.name
        return False

    @property
    def width(self) -> int:
        """The columns of the line that reads the variable, with the value in its place; too many if it has several."""
        first, (read, *_) = self.first, self.reads
        if first.lineno != first.end_lineno:
            return WIDTH + 1
        line = self.tree.lines[self.tree.row(read.lineno)]
        start, end = self.tree.span(self.value)
        comment = self.tree.lines[self.tree.row(first.lineno)].partition("  # ")[2]
        return len(line) - len(self.name) + end - start + len(f"  # {comment}" if comment else "")

    @property
    def joined_width(self) -> int:
        """The columns of the first statement with the value of the second, or 0 if it has several lines."""
        first, second = self.first, self.second
        if first.lineno != first.end_lineno:
            return 0
        return (
            len(self.tree.lines[self.tree.row(first.lineno)])
            + len(self.tree.text[slice(*self.tree.span(second))])
            - len(self.name)
        )

    @property
    def has_comments(self) -> bool:
        """Whether a comment stands between the statements, or beside both."""
        last, first = self.tree.row(self.first.end_lineno or 0), self.tree.row(self.second.lineno)
        between = [line.lstrip() for line in self.tree.lines[last + 1 : first]]
        beside = [self.tree.lines[row] for row in (last, first)]
        return any(line.startswith("#") for line in between) or all("  # " in line for line in beside)

    @property
    def has_comment_below(self) -> bool:
        """Whether a comment stands beside the second statement, or in it."""
        rows = range(self.tree.row(self.second.lineno), self.tree.row(self.second.end_lineno or 0) + 1)
        return any("  # " in self.tree.lines[row] for row in rows)


class Rule(Protocol):
    """What becomes of two statements.

    Attributes:
        PAIRS: before and after.
    """

    PAIRS: ClassVar[Pairs]

    @staticmethod
    def applies(pair: Pair, /) -> bool: ...

    @staticmethod
    def apply(pair: Pair, edits: Edits, /) -> None: ...


def _own_blocks(function: ast.AST) -> list[list[ast.stmt]]:
    """Returns the blocks of a function, without those of functions and classes in it."""
    found, queue = list[list[ast.stmt]](), [function]
    while queue:
        node = queue.pop()
        for block in blocks(node):
            found.append(block)
            queue += [x for x in block if not isinstance(x, (*FUNCTIONS, ast.ClassDef))]
    return found


def is_plain(node: ast.AST) -> bool:
    """Returns whether an expression is a name, a constant or an attribute of one: it does nothing but read."""
    return isinstance(node, (ast.Name, ast.Constant)) or (isinstance(node, ast.Attribute) and is_plain(node.value))


def is_first(node: ast.AST, read: ast.Name) -> bool:
    """Returns whether an expression evaluates `read` whenever it is evaluated, and before it does anything else."""
    if node is read:
        return True
    match node:
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.NamedExpr():
            return False
        case ast.IfExp():
            return is_first(node.test, read)
        case ast.BoolOp():
            return is_first(node.values[0], read)
        case ast.Compare(comparators=[_, _, *_]):
            return is_first(node.left, read)
    for child in children(node):
        if child is read or any(x is read for x in walk(child)):
            return is_first(child, read)
        if not is_plain(child):
            return False
    return False


def without(edits: Edits, pair: Pair) -> None:
    """Removes the first statement; the comment beside it goes to the second one."""
    line, below = edits.find(pair.first), edits.find(pair.second)
    if line.trailing_whitespace.comment:
        comment = line.trailing_whitespace
        edits.change(below, lambda statement: edits.altered(statement, trailing_whitespace=comment))
    edits.put(pair.first, [])


def in_parentheses(value: cst.BaseExpression) -> cst.BaseExpression:
    """Returns an expression with parentheses around it, unless it has some."""
    return value if value.lpar else value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
