"""Python texts, their trees, and the offsets of nodes in the texts.

The weaver never unparses a tree. It edits the traced text at the offsets of a node, so that every character outside the
edit keeps its origin.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property

from generator.code.caching import cached
from generator.code.traced import Traced, line_starts
from generator.errors import LoomError

_HEAD = "if True:\n"  # statements at a column above 0 parse only inside a block
_STRING = re.compile(
    r"#[^\n]*|[a-zA-Z]*(?:'''(?:\\.|(?!''').)*'''"
    r'|"""(?:\\.|(?!""").)*"""'
    r"""|'(?:\\.|[^'])*'|"(?:\\.|[^"])*")""",
    re.DOTALL,
)
_WITHOUT_CODE = frozenset({"arg", "attr", "ctx", "id", "kind", "op", "ops", "type_comment"})
_HOLDERS = {  # a kind of node -> its fields that may hold code
    kind: tuple(name for name in kind._fields if name not in _WITHOUT_CODE)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_VANISHING = frozenset({"point", "emit", "receive"})  # statements that may leave nothing
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)


class Tree:
    """A text and its tree, which is never changed: equal texts share one.

    Attributes:
        text: statements, all of them indented or none.
        statements: those at the top.
    """

    def __init__(self, text: str):
        self.text = text
        self._above = text.lstrip("\n").startswith(" ")
        self.module = ast.parse(_HEAD + text if self._above else text)
        first = self.module.body[0] if self._above else self.module
        self.statements: list[ast.stmt] = getattr(first, "body", [])
        self._starts, self._ascii = line_starts(text), text.isascii()

    def offset(self, line: int, column: int) -> int:
        """Returns the offset of a position in ast: a line from 1 and a column in UTF-8 bytes."""
        start = self._starts[line - 1 - self._above]
        if self._ascii:
            return start + column
        return start + len(self.text[start : start + column].encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Returns the offsets of a node's text, without decorators and without parentheses around it."""
        at: ast.expr = node  # type: ignore[assignment]
        return self.offset(at.lineno, at.col_offset), self.offset(at.end_lineno or 0, at.end_col_offset or 0)

    def span_of_name(self, node: ast.AST, name: str) -> tuple[int, int]:
        """Returns the offsets of a name that a node of any kind reads or binds."""
        start, end = self.span(node)
        if isinstance(node, (ast.MatchAs, ast.MatchStar)):
            start = end - len(name)
        elif not isinstance(node, (ast.Name, ast.arg)):
            before = r"(def|class)\s+" if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else r"\b"
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                before, start = r"\bas\s+", self.span(node.type)[1]
            match = re.compile(rf"{before}({name})\b").search(self.text, start)
            start = match.start(match.lastindex or 0) if match else start
        return start, start + len(name)

    @cached_property
    def _uncommented(self) -> str:
        """The text with blanks in place of comments and of the backslashes that join lines."""
        parts, end = list[str](), 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                start = self._starts[token.start[0] - 1] + token.start[1]
                parts += [self.text[end:start], " " * len(token.string)]
                end = start + len(token.string)
        return ("".join(parts) + self.text[end:]).replace("\\\n", " \n")

    def with_parentheses(self, node: ast.AST, after: int = 0) -> tuple[int, int]:
        """Returns the offsets of an expression with the parentheses around it.

        Args:
            after: the end of the opening parenthesis of a call, if the expression is its argument.
        """
        start, end = self.span(node)
        while re.match(r"\s*[)#\\]", self.text[end:]):  # rare: only then are comments looked for
            before, rest = self._uncommented[after:start].rstrip(), self._uncommented[end:]
            if not before.endswith("(") or not rest.lstrip().startswith(")"):
                break
            start, end = after + len(before) - 1, end + rest.index(")") + 1
        return start, end

    def rows_in_strings(self) -> set[int]:
        """Returns the lines, from 0, that begin inside a string: their leading blanks belong to it."""
        rows = set[int]()
        for node in walk(self.module):
            is_string = isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
            )
            if is_string and node.lineno != node.end_lineno:  # type: ignore[attr-defined]
                start, end = self.span(node)
                for part in _STRING.finditer(self.text, start, end):  # several may be written one after the other
                    first = self.text.count("\n", 0, part.start())
                    rows.update(range(first + 1, first + 1 + part[0].count("\n")))
        return rows


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
        self.module, self.statements, self.span = self.tree.module, self.tree.statements, self.tree.span
        self.with_parentheses = self.tree.with_parentheses

    def code(self, node: ast.AST) -> str:
        """Returns the text of a node."""
        return self.text[slice(*self.span(node))]

    def where(self, node: ast.AST) -> str:
        """Returns `path:line` of a node, for an error."""
        return str(self.traced.origin_at(self.span(node)[0]))

    def indent(self, node: ast.AST) -> int:
        """Returns the indentation of the first line of a node."""
        line = self.text[self._line(self.span(node)[0]) :]
        return len(line) - len(line.lstrip(" "))

    def _line(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1

    def lines(self, first: ast.AST, last: ast.AST | None = None) -> tuple[int, int]:
        """Returns the offsets of the whole lines of statements, with decorators and the comments right above."""
        top = getattr(first, "decorator_list", None) or [first]
        start, end = self._line(self.span(top[0])[0]), self.span(last or first)[1]
        while start and self.text[(above := self._line(start - 1)) : start].lstrip().startswith("#"):
            start = above
        newline = self.text.find("\n", end)
        return start, len(self.text) if newline < 0 else newline + 1

    def without_comments(self, statement: ast.AST) -> tuple[int, int]:
        """Returns the offsets of the whole lines of a statement, without the comments above it."""
        return self._line(self.span(statement)[0]), self.lines(statement)[1]

    def inserted(self, text: str, offset: int) -> Traced:
        """Returns inserted text whose origin is the line at an offset."""
        return Traced.insert(text, self.traced.origin_at(offset))


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


def placeholder(statement: ast.AST, source: TracedTree) -> Traced:
    """Returns the text in place of a removed statement: `pass` if its block would be empty, else nothing."""
    for block in (block for node in walk(source.module) for block in blocks(node) if statement in block):
        index = block.index(statement)  # type: ignore[arg-type]
        kept = index or any(called_name(statement_expression(other)) not in _VANISHING for other in block[index + 1 :])
        text = "" if kept else " " * source.indent(statement) + "pass\n"
        return source.inserted(text, source.span(statement)[0])
    return Traced()


def reindent(traced: Traced, width: int) -> Traced:
    """Returns the lines moved so that the first one begins at column `width`; lines inside strings are not moved."""
    lines = traced.lines()
    if not lines:
        return traced
    first = next(line.text for line in lines if line.text.strip())
    present = len(first) - len(first.lstrip(" "))
    if present == width:
        return traced
    strings = TracedTree(traced).tree.rows_in_strings() if re.search(r"\"\"\"|'''|\\\n", traced.text) else ()
    parts = []
    for row, line in enumerate(lines):
        if row not in strings and line.text.strip():
            own = len(line.text) - len(line.text.lstrip(" "))
            rest = line[min(own, present) :]
            line = Traced.insert(" " * width, rest.origin_at(0)) + rest
        parts.append(line)
    return Traced.join(parts)


def module_of(text: str) -> ast.Module:
    """Returns the tree of a text."""
    return parse(text).module
