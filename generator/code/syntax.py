"""Reading Python with libcst: nodes, and where they stand in the text.

The weaver never rebuilds a tree. It asks libcst where a call, a parameter or a statement stands and edits the traced
text there, so that every character outside the edit keeps its origin.
"""

from __future__ import annotations

import dataclasses
import re

import libcst as cst

from generator.code.concrete import parse
from generator.code.memory import remembered
from generator.code.traced import Traced, line_starts
from generator.errors import LoomError

_LONG_STRING = re.compile(r"\"\"\"|\'\'\'|\\\n")  # what a string that spans lines has
_SKIPPED = ("whitespace", "leading_", "lines_", "lpar", "rpar", "lbracket", "rbracket", "comma", "semicolon", "header")
_NODES = frozenset(kind for kind in vars(cst).values() if isinstance(kind, type) and cst.CSTNode in kind.__mro__)
Statement = cst.BaseStatement | cst.SimpleStatementSuite
_VANISHING = frozenset({"point", "emit", "receive"})  # statements that may leave nothing


class Source:
    """A traced text and its tree."""

    def __init__(self, traced: Traced):
        self.traced, self.text = traced, traced.text
        try:
            self.tree = parse(self.text)
        except cst.ParserSyntaxError as error:
            starts = line_starts(self.text)
            where = str(traced.origin_at(starts[min(error.raw_line, len(starts)) - 1])) if self.text else None
            reason = " ".join(error.message.split())
            raise LoomError(f"not valid Python: {reason}", where, "Fix the syntax of this line.") from None
        self.module = self.tree.module

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Offsets of the node's text, with its parentheses, without leading comments and the newline at the end."""
        return self.tree.span(node)

    def code(self, node: cst.CSTNode) -> str:
        return _code(self.module, node)

    def where(self, node: cst.CSTNode) -> str:
        """`path:line` of the node, for an error."""
        return str(self.traced.origin_at(self.span(node)[0]))

    def indent(self, node: cst.CSTNode) -> int:
        """The column at which the node's first line begins."""
        start = self.span(node)[0]
        line = self.text.rfind("\n", 0, start) + 1
        return len(self.text[line:]) - len(self.text[line:].lstrip(" "))

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """Offsets of the whole lines on which a statement stands, with decorators and the comments right above."""
        start, end = self.span(node)
        decorators = getattr(node, "decorators", ())
        if node in self.tree.statements:
            start = self.tree.statements[node][0]
        elif decorators:
            start = self.span(decorators[0])[0]
        start = self.text.rfind("\n", 0, start) + 1
        while start:
            above = self.text.rfind("\n", 0, start - 1) + 1
            if not self.text[above:start].strip().startswith("#"):
                break
            start = above
        newline = self.text.find("\n", end)
        return start, len(self.text) if newline < 0 else newline + 1

    def protected_lines(self) -> frozenset[int]:
        """Line numbers (from 0) that begin inside a string: their leading blanks belong to the string."""
        inside: set[int] = set()
        for node in walk(self.module):
            if isinstance(node, (cst.SimpleString, cst.FormattedString)):
                position = self.tree.positions[node]
                inside.update(range(position.start.line, position.end.line))
        return frozenset(inside)


@remembered
def _code(module: cst.Module, node: cst.CSTNode) -> str:
    return module.code_for_node(node)


@remembered
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a node that can hold code: not white space, commas, parentheses and the like."""
    return tuple(field.name for field in dataclasses.fields(kind) if not field.name.startswith(_SKIPPED))


@remembered
def children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The nodes right below, without white space and punctuation: much faster than libcst's `children`."""
    values = [getattr(node, name) for name in _fields(type(node))]
    items = [item for value in values for item in (value if type(value) in (tuple, list) else (value,))]
    return tuple(item for item in items if type(item) in _NODES)  # isinstance takes long for libcst's nodes


@remembered
def walk(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The node and all below it."""
    found, queue = [], [node]
    while queue:
        node = queue.pop()
        found.append(node)
        queue += reversed(children(node))
    return tuple(found)


@remembered
def below(node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> tuple[cst.CSTNode, ...]:
    """The nodes of exactly these types, the node itself and all below it."""
    return tuple(found for found in walk(node) if type(found) in kinds)  # isinstance takes long for libcst's nodes


def placeholder(statement: cst.CSTNode, source: Source) -> Traced:
    """What stays of a statement that goes: `pass` where its block holds nothing else, so that the block stays one."""
    for node in walk(source.module):
        block = node.body if isinstance(node, cst.IndentedBlock) else ()
        if any(member is statement for member in block):
            above = block[: [member is statement for member in block].index(True)]
            below = [member for member in block[len(above) + 1 :] if called(expression(member)) not in _VANISHING]
            text = "" if above or below else " " * source.indent(statement) + "pass\n"
            return Traced.insert(text, source.traced.origin_at(source.span(statement)[0]))
    return Traced()


def simple(statement: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """The only small statement of a line, or None for a compound statement or several on a line."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return statement.body[0]
    return None


def called(node: cst.CSTNode | None) -> str:
    """The dotted name that a call calls, or '' where it is not a call of a name."""
    return dotted(node.func) if isinstance(node, cst.Call) else ""


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` of a name or an attribute chain, else ''."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def parse_expression(text: str) -> cst.BaseExpression:
    """The tree of an expression that is known to be one."""
    return cst.parse_expression(text.strip())


def expression(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """The expression of an expression statement, else None."""
    small = simple(statement)
    return small.value if isinstance(small, cst.Expr) else None


def is_docstring(statement: cst.CSTNode) -> bool:
    return isinstance(expression(statement), (cst.SimpleString, cst.ConcatenatedString))


def parameters(function: cst.FunctionDef) -> list[cst.Param]:
    """Positional and keyword parameters, in order (a fragment's host has no others)."""
    return [*function.params.posonly_params, *function.params.params, *function.params.kwonly_params]


def body(function: cst.CSTNode) -> list[cst.BaseStatement]:
    """The statements of a block; a body on the line of its header is not for fragments."""
    block = getattr(function, "body", None)
    return list(block.body) if isinstance(block, cst.IndentedBlock) else []


@remembered
def statements(function: cst.FunctionDef | cst.BaseCompoundStatement) -> tuple[Statement, ...]:
    """The statements of a function, those in if, for, while, with, try and match too; a nested function is one."""
    found: list[Statement] = []

    def visit(node: cst.CSTNode) -> None:
        for child in children(node):
            if isinstance(child, (cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.FunctionDef, cst.ClassDef)):
                found.append(child)
            elif isinstance(child, cst.BaseCompoundStatement):
                found.append(child)
                visit(child)
            elif not isinstance(child, cst.BaseExpression):
                visit(child)

    visit(function)
    return tuple(found)


@remembered
def own_expressions(statement: Statement) -> tuple[cst.CSTNode, ...]:
    """The nodes of a statement, without those of the statements inside it."""
    found = []

    def visit(node: cst.CSTNode) -> None:
        found.append(node)
        for child in children(node):
            if not isinstance(child, (cst.BaseSuite, cst.Else, cst.Finally)) and not (
                isinstance(statement, cst.If) and child is statement.orelse
            ):
                visit(child)

    if isinstance(statement, cst.SimpleStatementSuite):
        for child in children(statement):
            visit(child)
    else:
        visit(statement)
    return tuple(found)


def reindent(traced: Traced, width: int) -> Traced:
    """The lines moved so that the first one stands at column `width`; lines inside strings stay as they are."""
    lines = traced.lines()
    if not lines:
        return traced
    first = next(line.text for line in lines if line.text.strip())
    present = len(first) - len(first.lstrip(" "))
    protected = Source(_as_block(traced, present)).protected_lines() if _LONG_STRING.search(traced.text) else ()
    offset = 1 if present else 0
    parts = []
    for number, line in enumerate(lines):
        if number + offset in protected or not line.text.strip():
            parts.append(line)
            continue
        own = len(line.text) - len(line.text.lstrip(" "))
        rest = line[min(own, present) :]
        parts.append(Traced.insert(" " * width, rest.origin_at(0)) + rest if width else rest)
    return Traced.join(parts)


def _as_block(traced: Traced, indent: int) -> Traced:
    """Statements at a column above 0 parse only inside a block."""
    if not indent:
        return traced
    return Traced.insert("if True:\n", traced.origin_at(0)) + traced


@remembered
def own_nodes(function: cst.FunctionDef) -> tuple[cst.CSTNode, ...]:
    """The nodes below a function, without those of functions nested in it."""
    found: list[cst.CSTNode] = []

    def visit(node: cst.CSTNode) -> None:
        for child in children(node):
            if type(child) not in (cst.FunctionDef, cst.Lambda, cst.ClassDef):
                found.append(child)
                visit(child)

    visit(function.body)
    return tuple(found)
