"""The splice operator: statements of fragments in the places that hosts mark for them.

before, in a host and in the fragment qk_norm      after
    q = self.query(x)                                  q = self.query(x)
    point("Attention.heads", q, k)                     q, k = self.query_norm(q), self.key_norm(k)
    context = attend(q, k, v)                          context = attend(q, k, v)

    @splice("Attention.heads")
    def _(self, q, k):
        q, k = self.query_norm(q), self.key_norm(k)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import libcst as cst

from generator import syntax
from generator.errors import LoomError, nearest
from generator.fragment import Definition, Splice
from generator.syntax import Source
from generator.traced import Edit, Origin, Traced
from generator.weave.names import as_block, bound_names, unblocked, variables
from generator.weave.order import in_order


@dataclass(frozen=True)
class Point:
    """A join point in a host."""

    name: str
    shown: tuple[str, ...]
    named: tuple[tuple[str, str], ...]  # keyword -> expression
    function: str  # id of the enclosing function, as in the call graph
    method: bool
    key: str
    statement: cst.BaseStatement
    host: cst.FunctionDef
    source: Source

    @property
    def where(self) -> str:
        return self.source.where(self.statement)

    def inside(self, other: Point) -> bool:
        """Whether this point stands among the statements of another one."""
        (start, end), (first, last) = self.source.span(self.statement), other.source.span(other.statement)
        return self.key == other.key and first < start and end <= last


@dataclass(frozen=True)
class Need:
    """A splice in `function` reads `name`, which its point does not show."""

    function: str
    name: str
    fragment: str
    origin: Origin
    point: str
    point_where: str


def weave_splices(
    definitions: dict[str, Definition], splices: Iterable[Splice]
) -> tuple[dict[str, Definition], list[Need]]:
    """Puts all splices in place and removes the points.

    Args:
        definitions: key -> definition.
        splices: of the selected fragments, in order of selection.

    Returns:
        The definitions, and what the threading operator has to bring to spliced statements.

    Raises:
        LoomError: a point that no host has, two hosts with one point, an order that is missing or goes in a circle, a
            rebound name that the point only shows as an expression.
    """
    splices = list(splices)
    woven, needs = dict(definitions), []
    hosts: dict[str, Point] = {}
    while points := find_points(woven):
        hosts |= points
        edits: dict[str, list[Edit]] = {}
        for name, point in points.items():
            if not any(point.inside(other) for other in points.values()):  # the inner ones come next time round
                chosen = [splice for splice in splices if splice.point == name]
                edits.setdefault(point.key, []).append(_edit(point, in_order(chosen, point.where), needs))
        for key, changes in edits.items():
            woven[key] = replace(woven[key], text=woven[key].text.edited(changes))
    for splice in splices:
        if splice.point not in hosts and not splice.optional:
            raise LoomError(
                f"{splice.fragment} splices into the point {splice.point!r}, which no selected fragment has",
                str(splice.origin),
                f"{nearest(splice.point, hosts)} Or say optional=True.",
            )
    return woven, needs


def find_points(definitions: dict[str, Definition]) -> dict[str, Point]:
    """All join points by name, in the order of the definitions."""
    points: dict[str, Point] = {}
    for key, definition in definitions.items():
        if "point(" not in definition.text.text:
            continue
        source = Source(definition.text)
        prefix = key.rsplit(":", 1)[0] + ":" if ":" in key else ""
        for point in _points_below(source.module, prefix, None, False, key, source):
            if point.name in points:
                remedy = "Give one of them another name, or select only one of the hosts."
                raise LoomError(f"the point {point.name!r} is also at {points[point.name].where}", point.where, remedy)
            points[point.name] = point
    return points


def _points_below(
    node: cst.CSTNode, prefix: str, host: cst.FunctionDef | None, method: bool, key: str, source: Source
) -> Iterable[Point]:
    for child in syntax.children(node):
        if isinstance(child, (cst.FunctionDef, cst.ClassDef)):
            separator = "." if prefix and not prefix.endswith(":") else ""
            inner = child if isinstance(child, cst.FunctionDef) else None
            is_method = method or isinstance(node, cst.IndentedBlock) and host is None and inner is not None
            name = f"{prefix}{separator}{child.name.value}"
            yield from _points_below(child, name, inner or host, bool(is_method and prefix), key, source)
            continue
        call = _point_call(child)
        if call is not None and host is not None:
            yield _read_point(call, child, prefix, host, method, key, source)
        yield from _points_below(child, prefix, host, method, key, source)


def _point_call(statement: cst.CSTNode) -> cst.Call | None:
    if isinstance(statement, cst.With) and syntax.called(statement.items[0].item) == "point":
        return cst.ensure_type(statement.items[0].item, cst.Call)
    call = syntax.expression(statement)
    return cst.ensure_type(call, cst.Call) if syntax.called(call) == "point" else None


def _read_point(
    call: cst.Call,
    statement: cst.BaseStatement,
    function: str,
    host: cst.FunctionDef,
    method: bool,
    key: str,
    source: Source,
) -> Point:
    first, *rest = call.args
    shown = [source.code(argument.value) for argument in rest if not argument.keyword]
    if isinstance(statement, cst.With):  # what its statements bind is there to rebind
        shown += sorted(bound_names(statement.body))
    return Point(
        name=source.code(first.value).strip("\"'"),
        shown=tuple(shown),
        named=tuple((a.keyword.value, source.code(a.value)) for a in rest if a.keyword),
        function=function,
        method=method,
        key=key,
        statement=statement,
        host=host,
        source=source,
    )


def _edit(point: Point, splices: list[Splice], needs: list[Need]) -> Edit:
    """The edit that replaces a point by its splices, in order."""
    source = point.source
    start = source.text.rfind("\n", 0, source.span(point.statement)[0]) + 1
    end = source.lines(point.statement)[1]
    width = source.indent(point.statement)
    taken = {node.value for node in syntax.walk(point.host) if isinstance(node, cst.Name)}
    parts = []
    if isinstance(point.statement, cst.With):
        statements = syntax.body(point.statement)
        first, last = source.lines(statements[0])[0], source.lines(statements[-1])[1]
        inside = source.traced[first:last]
        for splice in splices:  # each one wraps what there is, so the last is the outermost
            inside = _wrap(_adapt(splice, point, taken, needs), inside)
        parts.append(syntax.reindent(inside, width))
    else:
        parts += [syntax.reindent(_adapt(splice, point, taken, needs), width) for splice in splices]
    return Edit(start, end, Traced.join(parts))


def _wrap(body: Traced, inside: Traced) -> Traced:
    """A splice at a block point, its `proceed()` replaced by the statements of the host."""
    source = as_block(body)
    edits = []
    for node in syntax.walk(source.module):
        if isinstance(node, cst.SimpleStatementLine) and syntax.called(syntax.expression(node)) == "proceed":
            start = source.text.rfind("\n", 0, source.span(node)[0]) + 1
            new = syntax.reindent(inside, source.indent(node))
            edits.append(Edit(start, source.lines(node)[1], new))
    return unblocked(source.traced.edited(edits))


def _adapt(splice: Splice, point: Point, taken: set[str], needs: list[Need]) -> Traced:
    """The body of a splice in the names of the host."""
    named = dict(point.named)
    body = as_block(splice.body)
    bound = bound_names(body.module)
    for name in splice.reads:
        if name in named:
            if name in bound:
                remedy = f"Show the local name at {point.where}, or bind another name."
                raise LoomError(
                    f"{splice.fragment} rebinds {name}, which the point {point.name!r} shows as {named[name]}",
                    str(splice.origin),
                    remedy,
                )
        elif name not in point.shown and not (name == "self" and point.method):
            needs.append(Need(point.function, name, splice.fragment, splice.origin, point.name, point.where))
    short = splice.fragment.split("/")[-1]
    own = bound - set(splice.reads)
    renamed = {name: f"{short}_{name}" for name in own & taken}
    taken |= own - set(renamed) | set(renamed.values())
    replacements = {**renamed, **{name: text for name, text in named.items() if name in splice.reads}}
    edits = []
    for node in variables(body.module):
        new = replacements.get(node.value)
        if new is not None and new != node.value:
            start, end = body.span(node)
            edits.append(Edit(start, end, Traced.insert(new, body.traced.origin_at(start))))
    return unblocked(body.traced.edited(edits))
