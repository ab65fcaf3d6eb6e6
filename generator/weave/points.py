"""Join points: the places that hosts mark with `point(...)`, and what they show there."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.code.names import bound_names
from generator.code.syntax import Source
from generator.code.traced import Traced
from generator.errors import LoomError


@dataclass(frozen=True)
class Point:
    """A join point in a host.

    Attributes:
        named: keyword -> expression.
        method: whether `self` is there.
        in_class: whether it stands in a class.
        function: id of the enclosing function, as in the call graph.
        hosts: the enclosing functions, the outermost one first.
        fields_of: the class among whose fields it stands, where no function is around it.
        key: of the definition that holds it.
    """

    name: str
    shown: tuple[str, ...]
    named: dict[str, str]
    function: str
    method: bool
    in_class: bool
    hosts: tuple[cst.FunctionDef, ...]
    key: str
    statement: cst.BaseStatement
    source: Source
    fields_of: cst.ClassDef | None = None

    @property
    def where(self) -> str:
        return self.source.where(self.statement)

    @property
    def is_block(self) -> bool:
        return isinstance(self.statement, cst.With)

    def inside(self, other: Point) -> bool:
        """Whether this point stands among the statements of another one."""
        (start, end), (first, last) = self.source.span(self.statement), other.source.span(other.statement)
        return self.key == other.key and first < start and end <= last

    def names_in(self, keyword: str) -> set[str]:
        """The variables in the expression that is shown by a keyword."""
        tree = ast.parse(self.named[keyword].strip(), mode="eval")
        return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@remembered
def find_points(key: str, text: Traced) -> dict[str, Point]:
    """The join points of one definition by name."""
    points: dict[str, Point] = {}
    if "point(" in text.text:
        source = Source(text)
        prefix = key.rsplit(":", 1)[0] + ":" if ":" in key else ""
        for point in _points_below(source.module, prefix, (), False, key, source):
            if point.name in points:
                remedy = "Give one of them another name."
                raise LoomError(f"the point {point.name!r} is also at {points[point.name].where}", point.where, remedy)
            points[point.name] = point
    return points


def _points_below(
    node: cst.CSTNode,
    prefix: str,
    hosts: tuple[cst.FunctionDef, ...],
    method: bool,
    key: str,
    source: Source,
    owner: cst.CSTNode | None = None,
) -> Iterable[Point]:
    for child in syntax.children(node):
        if isinstance(child, (cst.FunctionDef, cst.ClassDef)):
            separator = "." if prefix and not prefix.endswith(":") else ""
            name = f"{prefix}{separator}{child.name.value}"
            if isinstance(child, cst.ClassDef) and hosts and "point(" in source.code(child):
                remedy = "Move the class out of the function, and its points into its methods."
                raise LoomError("a class in a function can have no points", source.where(child), remedy)
            inner = (*hosts, child) if isinstance(child, cst.FunctionDef) else hosts
            yield from _points_below(child, name, inner, method or isinstance(child, cst.ClassDef), key, source, child)
            continue
        if isinstance(child, cst.BaseExpression):
            continue  # no statements below
        call = _point_call(child, source)
        if call is not None and not hosts and isinstance(owner, cst.ClassDef) and isinstance(child, cst.BaseStatement):
            yield _read_fields_point(call, child, prefix, owner, key, source)
        if call is not None and hosts and isinstance(child, cst.BaseStatement):
            yield _read_point(call, child, prefix, hosts, method, key, source)
        yield from _points_below(child, prefix, hosts, method, key, source, owner)


def _point_call(statement: cst.CSTNode, source: Source) -> cst.Call | None:
    if isinstance(statement, cst.With):
        items = [item.item for item in statement.items]
        calls = [item for item in items if isinstance(item, cst.Call) and syntax.called(item) == "point"]
        if calls and (len(statement.items) > 1 or statement.items[0].asname):
            remedy = "Write `with point(...):` alone, and other `with` statements around or inside it."
            raise LoomError("a point shares its `with`", source.where(statement), remedy)
        return calls[0] if calls else None
    call = syntax.expression(statement)
    return cst.ensure_type(call, cst.Call) if syntax.called(call) == "point" else None


def _read_fields_point(
    call: cst.Call, statement: cst.BaseStatement, name: str, owner: cst.ClassDef, key: str, source: Source
) -> Point:
    point = _read_point(call, statement, name, (), False, key, source)
    if point.shown or point.named or point.is_block:
        remedy = 'Write point("Host.fields") alone.'
        raise LoomError("a point among the fields of a class shows nothing", point.where, remedy)
    return replace(point, in_class=True, fields_of=owner)


def _read_point(
    call: cst.Call,
    statement: cst.BaseStatement,
    function: str,
    hosts: tuple[cst.FunctionDef, ...],
    method: bool,
    key: str,
    source: Source,
) -> Point:
    where = source.where(statement)
    if not call.args or not isinstance(call.args[0].value, cst.SimpleString) or any(a.star for a in call.args):
        raise LoomError("a point needs a name", where, 'Write point("Host.place", x, size=x.shape[0]).')
    shown, named = [], {}
    for argument in call.args[1:]:
        text = source.code(argument.value)
        text = f"({text})" if "\n" in text else text
        if argument.keyword:
            named[argument.keyword.value] = text
        elif isinstance(argument.value, cst.Name):
            shown.append(text)
        else:
            remedy = f"Name the expression: point(..., name={text})."
            raise LoomError(f"a point shows {text}, which is not a local name", where, remedy)
    if isinstance(statement, cst.With):  # what its statements bind is there to rebind
        shown += sorted(bound_names(statement.body))
    name = ast.literal_eval(source.code(call.args[0].value))
    first = hosts[0].params.params[0].name.value if hosts and hosts[0].params.params else ""
    return Point(name, tuple(shown), named, function, method and first == "self", method, hosts, key, statement, source)
