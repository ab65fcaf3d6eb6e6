"""Python texts and the trees by which passes ask about them.

These are ast's, which are made in an eighth of the time of libcst's. What changes a text is in edits.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from generator.code.caching import cached
from generator.code.traced import Origin, Traced, line_starts
from generator.errors import LoomError

HEAD = "if True:\n"  # statements at a column above 0 parse only inside a block
_WITHOUT_CODE = frozenset({"arg", "attr", "ctx", "id", "kind", "op", "ops", "type_comment"})
_HOLDERS = {  # a kind of node -> its fields that may hold code
    kind: tuple(name for name in kind._fields if name not in _WITHOUT_CODE)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)


def is_indented(text: str) -> bool:
    """Returns whether the first line of statements begins with blanks."""
    return text.lstrip("\n").startswith(" ")


class Tree:
    """A text and its tree, which is never changed: equal texts share one.

    Attributes:
        text: statements, all of them indented or none.
        statements: those at the top.
        lines: of the text.
    """

    def __init__(self, text: str):
        self.text = text
        self._above = is_indented(text)
        self.module = ast.parse(HEAD + text if self._above else text)
        first = self.module.body[0] if self._above else self.module
        self.statements: list[ast.stmt] = getattr(first, "body", [])
        self.lines = text.split("\n")
        self._starts, self._ascii = line_starts(text), text.isascii()

    def row(self, line: int) -> int:
        """Returns the line of the text, from 0, of a line in ast."""
        return line - 1 - self._above

    def offset(self, line: int, column: int) -> int:
        """Returns the offset of a position in ast: a line from 1 and a column in UTF-8 bytes."""
        start = self._starts[self.row(line)]
        if self._ascii:
            return start + column
        return start + len(self.text[start : start + column].encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Returns the offsets of a node's text, without decorators and without parentheses around it."""
        at: ast.expr = node  # type: ignore[assignment]
        return self.offset(at.lineno, at.col_offset), self.offset(at.end_lineno or 0, at.end_col_offset or 0)


@cached
def parse(text: str) -> Tree:
    """Parses a text.

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """
    return Tree(text)


class TracedTree:
    """A traced text and its tree."""

    def __init__(self, traced: Traced):
        self.traced, self.text = traced, traced.text
        try:
            self.tree = parse(self.text)
        except SyntaxError as error:
            row = min((error.lineno or 1) - 1, self.text.count("\n"))
            where = str(traced.origin_at(line_starts(self.text)[row])) if self.text else None
            raise LoomError(f"not valid Python: {error.msg}", where, "Fix the syntax of this line.") from None
        self.module, self.statements = self.tree.module, self.tree.statements

    def code(self, node: ast.AST) -> str:
        """Returns the text of a node, without decorators and without parentheses around it."""
        return self.text[slice(*self.tree.span(node))]

    def origin(self, node: ast.AST) -> Origin:
        """Returns the line that a node comes from."""
        return self.traced.origin_at(self.tree.span(node)[0])

    def where(self, node: ast.AST) -> str:
        """Returns `path:line` of a node, for an error."""
        return str(self.origin(node))

    def lines(self, first: ast.stmt, last: ast.stmt | None = None) -> Traced:
        """Returns the whole lines of statements, with decorators and the comments right above."""
        top: Any = (getattr(first, "decorator_list", None) or [first])[0]
        start, end = self.tree.row(top.lineno), self.tree.row((last or first).end_lineno or 0) + 1
        while start and self.tree.lines[start - 1].lstrip().startswith("#"):
            start -= 1
        return self.traced.rows(start, end)


def children(node: ast.AST) -> list[ast.AST]:
    """Returns the nodes right below that hold code, not operators and contexts, in the order of the grammar."""
    try:
        return node.__children  # type: ignore[attr-defined]
    except AttributeError:  # trees never change, and are walked many times
        nodes: list[ast.AST] = []
    for name in _HOLDERS[type(node)]:
        value = getattr(node, name, None)
        if isinstance(value, list):
            nodes += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            nodes.append(value)
    node.__children = nodes  # type: ignore[attr-defined]
    return nodes


def walk(*nodes: ast.AST, into: bool = True) -> Iterator[ast.AST]:
    """Yields the nodes and all below them, in the order of the grammar.

    Args:
        into: whether to go into functions, lambdas and classes below them too.
    """
    queue = list(reversed(nodes))
    while queue:
        node = queue.pop()
        yield node
        below = children(node)
        queue += reversed(below if into else [child for child in below if not isinstance(child, SCOPES)])


def position(node: Any) -> tuple[int, int]:
    """Returns the line and the column at which a node begins, to compare with those of others."""
    return node.lineno, node.col_offset


def dotted_name(node: ast.AST | None) -> str:
    """Returns `a.b.c` for a name or an attribute chain, else ''."""
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def called_name(node: ast.AST | None) -> str:
    """Returns the dotted name that a call calls, or '' if the node is not a call of a name."""
    return dotted_name(node.func) if isinstance(node, ast.Call) else ""


def statement_expression(statement: ast.AST) -> ast.expr | None:
    """Returns the expression of an expression statement, else None."""
    return statement.value if isinstance(statement, ast.Expr) else None


def is_docstring(statement: ast.AST) -> bool:
    value = statement_expression(statement)
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def parameters(function: Function | ast.Lambda) -> list[ast.arg]:
    """Returns positional and keyword parameters, in order, without starred ones."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yields the blocks of a compound statement, those of clauses of `try` and `match` too."""
    for name in "body", "handlers", "cases", "orelse", "finalbody":
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            if isinstance(block[0], ast.stmt):
                yield block
            else:
                for clause in block:
                    yield from blocks(clause)
