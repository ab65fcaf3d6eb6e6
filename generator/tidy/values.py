"""Values that are written where they are read."""

from __future__ import annotations

import ast
from typing import ClassVar

import libcst as cst

from generator.code.edits import Edits
from generator.code.tree import children, walk
from generator.tidy.pair import WIDTH, Pair, Pairs, is_first, is_plain, without

DEPTH = 2  # calls in each other that are still read at once
_TIGHT = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.Dict, ast.Set, ast.JoinedStr)


class Returned:
    """Returns a value without a name for it."""

    PAIRS: ClassVar[Pairs] = (
        (
            """
            def rotate(x, cos):
                y = x * cos
                return y
            """,
            """
            def rotate(x, cos):
                return x * cos
            """,
        ),
    )

    @staticmethod
    def applies(pair: Pair) -> bool:
        """The value may have been named before; what is around an inner block, such as `finally`, may read the name."""
        match pair.second:
            case ast.Return(value=ast.Name(id=pair.name)) if not pair.has_comment_below:
                return pair.is_outermost or pair.uses == 2
        return False

    @staticmethod
    def apply(pair: Pair, edits: Edits) -> None:
        cause = edits.source.origin(pair.second)

        def returned(line: cst.SimpleStatementLine) -> list[cst.SimpleStatementLine]:
            value = cst.ensure_type(line.body[0], cst.Assign).value
            return [edits.altered(line, leading_lines=(), body=[edits.new(cst.Return(value), cause)])]

        edits.put(pair.first, returned)
        edits.drop(pair.second)


class Inlined:
    """Writes a value in place of a second name for something, or of a name of one letter, if that is read once.

    A name that goes on (`x = f(x)`, `x = g(x)`) stays, and so does one that keeps calls out of calls out of calls.
    """

    PAIRS: ClassVar[Pairs] = (
        (
            """
            def attend(self, context):
                y = self.out(context)  # [B, T, D]
                return checkpoint_name(y, "out")
            """,
            """
            def attend(self, context):
                return checkpoint_name(self.out(context), "out")  # [B, T, D]
            """,
        ),
        (
            """
            def check(length, shares):
                multiple = shares
                if length % multiple:
                    raise ValueError(length)
            """,
            """
            def check(length, shares):
                if length % shares:
                    raise ValueError(length)
            """,
        ),
        (
            """
            def block(x, norm, mlp):
                h = norm(x)
                h = mlp(h)
                return x + h, h
            """,
            """
            def block(x, norm, mlp):
                h = mlp(norm(x))
                return x + h, h
            """,
        ),
    )

    @staticmethod
    def applies(pair: Pair) -> bool:
        if len(pair.reads) != 1 or not (pair.uses == 2 or pair.is_rebound):
            return False
        head, (read,) = _head(pair.second), pair.reads
        if head is None or not is_first(head, read) or pair.width > WIDTH:
            return False
        if isinstance(pair.value, (ast.Name, ast.Attribute)) and is_plain(pair.value) and pair.uses == 2:
            return True
        goes_on = any(isinstance(node, ast.Name) and node.id == pair.name for node in walk(pair.value))
        depth = _depth(pair.value) + _depth(head, read)
        is_whole = isinstance(pair.value, _TIGHT) or _stands_alone(head, read)
        return len(pair.name) == 1 and not goes_on and depth <= DEPTH and is_whole

    @staticmethod
    def apply(pair: Pair, edits: Edits) -> None:
        value = edits.find(pair.value)
        edits.change(pair.reads[0], lambda old: edits.in_parentheses_of(old, value))
        without(edits, pair)


def _head(statement: ast.stmt) -> ast.expr | None:
    """Returns the expression that a statement evaluates first."""
    match statement:
        case ast.Return(value=value) | ast.Assign(value=value) | ast.Expr(value=value):
            return value
        case ast.If(test=test) | ast.Assert(test=test):
            return test
        case ast.For(iter=iterable):
            return iterable
    return None


def _depth(node: ast.AST, read: ast.Name | None = None) -> int:
    """Returns how many calls stand in each other, at most, or around a name."""
    if read and not any(below is read for below in walk(node)):
        return 0
    return isinstance(node, ast.Call) + max((_depth(child, read) for child in children(node)), default=0)


def _stands_alone(head: ast.expr, read: ast.Name) -> bool:
    """Returns whether a name is a whole argument, or all of an expression: any value can stand there."""
    calls = [node for node in ast.walk(head) if isinstance(node, ast.Call)]
    return head is read or any(read in call.args or read in [k.value for k in call.keywords] for call in calls)
