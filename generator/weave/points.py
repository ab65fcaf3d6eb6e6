"""Join points: the places that hosts mark with `point(...)`, and what they show there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from generator.code.bindings import bound_names, names_in
from generator.code.caching import cached
from generator.code.traced import Traced
from generator.code.tree import FUNCTIONS, Function, TracedTree, blocks, called_name, statement_expression
from generator.errors import LoomError


@dataclass(frozen=True)
class Point:
    """A join point in a host.

    Attributes:
        named: keyword -> expression.
        function: id of the enclosing function, as in the call graph.
        hosts: the enclosing functions, the outermost one first.
        owner: the class around it.
        key: of the definition that holds it.
    """

    name: str
    shown: tuple[str, ...]
    named: dict[str, str]
    function: str
    hosts: tuple[Function, ...]
    owner: ast.ClassDef | None
    key: str
    statement: ast.stmt
    source: TracedTree

    @property
    def where(self) -> str:
        return self.source.where(self.statement)

    @property
    def is_block(self) -> bool:
        return isinstance(self.statement, ast.With)

    @property
    def in_method(self) -> bool:
        """Whether `self` is there."""
        first = self.hosts[0].args.args[:1] if self.hosts and self.owner else []
        return [parameter.arg for parameter in first] == ["self"]

    def inside(self, other: Point) -> bool:
        """Whether this point stands among the statements of another one."""
        (start, end), (first, last) = self.source.span(self.statement), other.source.span(other.statement)
        return self.key == other.key and first < start and end <= last

    def names_in(self, keyword: str) -> set[str]:
        """The variables in the expression that is shown by a keyword."""
        return names_in(ast.parse(self.named[keyword].strip(), mode="eval"))


@cached
def find_points(key: str, text: Traced) -> dict[str, Point]:
    """The join points of one definition by name."""
    points: dict[str, Point] = {}
    if "point(" in text.text:
        source = TracedTree(text)
        prefix = key.rsplit(":", 1)[0] + ":" if ":" in key else ""
        for point in _points_in(source.module, prefix, (), None, key, source):
            if point.name in points:
                remedy = "Give one of them another name."
                raise LoomError(f"the point {point.name!r} is also at {points[point.name].where}", point.where, remedy)
            points[point.name] = point
    return points


def _points_in(
    node: ast.AST, name: str, hosts: tuple[Function, ...], owner: ast.ClassDef | None, key: str, source: TracedTree
) -> Iterator[Point]:
    for child in (statement for block in blocks(node) for statement in block):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            inner = f"{name}{'.' if name and not name.endswith(':') else ''}{child.name}"
            if isinstance(child, ast.ClassDef):
                if hosts and "point(" in source.code(child):
                    remedy = "Move the class out of the function, and its points into its methods."
                    raise LoomError("a class in a function can have no points", source.where(child), remedy)
                yield from _points_in(child, inner, hosts, child, key, source)
            else:
                yield from _points_in(child, inner, (*hosts, child), owner, key, source)
            continue
        call = _point_call(child, source)
        if call is not None and (hosts or owner):
            yield _read_point(call, child, name, hosts, owner, key, source)
        yield from _points_in(child, name, hosts, owner, key, source)


def _point_call(statement: ast.stmt, source: TracedTree) -> ast.Call | None:
    items = [item.context_expr for item in statement.items] if isinstance(statement, ast.With) else []
    for call in (statement_expression(statement), *items):
        if isinstance(call, ast.Call) and called_name(call) == "point":
            if isinstance(statement, ast.With) and (len(items) > 1 or statement.items[0].optional_vars):
                remedy = "Write `with point(...):` alone, and other `with` statements around or inside it."
                raise LoomError("a point shares its `with`", source.where(statement), remedy)
            return call
    return None


def _read_point(
    call: ast.Call,
    statement: ast.stmt,
    function: str,
    hosts: tuple[Function, ...],
    owner: ast.ClassDef | None,
    key: str,
    source: TracedTree,
) -> Point:
    where, first = source.where(statement), call.args[0] if call.args else None
    name = first.value if isinstance(first, ast.Constant) else None
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    stars = len(keywords) < len(call.keywords) or any(isinstance(argument, ast.Starred) for argument in call.args)
    if not isinstance(name, str) or stars:
        raise LoomError("a point needs a name", where, 'Write point("Host.place", x, size=x.shape[0]).')
    shown = []
    for argument in call.args[1:]:
        if not isinstance(argument, ast.Name):
            text = source.code(argument)
            remedy = f"Name the expression: point(..., name={text})."
            raise LoomError(f"a point shows {text}, which is not a local name", where, remedy)
        shown.append(argument.id)
    texts = {word: source.text[slice(*source.with_parentheses(value))] for word, value in keywords.items()}
    named = {word: f"({text})" if "\n" in text else text for word, text in texts.items()}
    if isinstance(statement, ast.With):  # what its statements bind is there to rebind
        shown += sorted(bound_names(*statement.body))
    point = Point(name, tuple(shown), named, function, hosts, owner, key, statement, source)
    if not hosts and (shown or named or point.is_block):
        remedy = 'Write point("Host.fields") alone.'
        raise LoomError("a point among the fields of a class shows nothing", where, remedy)
    return point
