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

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

import libcst as cst

from generator.code import syntax
from generator.code.flow import Flow
from generator.code.memory import remembered
from generator.code.names import as_block, bound_by, bound_names, unblocked, variables
from generator.code.scopes import scopes_of
from generator.code.traced import Edit, Traced
from generator.errors import LoomError, nearest
from generator.language.parts import Definition, Splice
from generator.weave.adapt import Need, Scope, adapt, as_fields
from generator.weave.order import in_order
from generator.weave.points import Point, find_points
from generator.weave.shared import check_bound_first, shared_in

_LOOPS = (cst.For, cst.While)
_OTHER_SCOPES = (cst.FunctionDef, cst.Lambda, cst.ClassDef)


def weave_splices(
    definitions: dict[str, Definition],
    splices: Iterable[Splice],
    threaded: Iterable[str] = (),
    elsewhere: Callable[[Splice], str] = lambda splice: "",
) -> tuple[dict[str, Definition], list[Need]]:
    """Puts all splices in place and removes the points.

    Args:
        definitions: key -> definition.
        splices: of the selected fragments, in order of selection.
        threaded: names of the values that travel through functions.
        elsewhere: what to say of a splice whose point is in no host here; of an optional one, if it should have one.

    Returns:
        The definitions, and what the threading operator has to bring to spliced statements.
    """
    carried, woven, needs = frozenset(threaded), dict(definitions), list[Need]()
    by_point: dict[str, list[Splice]] = {}
    for splice in splices:
        by_point.setdefault(splice.point, []).append(splice)
    hosts: dict[str, Point] = {}
    for key, definition in definitions.items():
        text, done = definition.text, set[str]()
        shared = shared_in(find_points(key, text).values(), by_point)
        owners = frozenset((name, splice.fragment) for name, splice in shared.items())
        while points := find_points(key, text):
            for name, point in points.items():
                if name in done:
                    raise LoomError(f"the point {name!r} is in a splice for itself", point.where, "Remove it there.")
                if hosts.setdefault(name, point).key != key:
                    remedy = "Give one of them another name, or select only one of the hosts."
                    raise LoomError(f"the point {name!r} is also at {hosts[name].where}", point.where, remedy)
            chosen = tuple(splice for name in points for splice in by_point.get(name, ()))
            text, more, filled = _spliced(key, text, chosen, carried, owners)
            needs += more
            done |= filled
        check_bound_first(text, shared)
        woven[key] = definition if text is definition.text else replace(definition, text=text)
    for splice in (splice for name, some in by_point.items() if name not in hosts for splice in some):
        remedy = elsewhere(splice)
        if remedy or not splice.optional:
            raise LoomError(
                f"{splice.fragment} splices into the point {splice.point!r}, which no selected fragment has",
                str(splice.origin),
                remedy or f"{nearest(splice.point, hosts)} Or say optional=True.",
                dependent=splice.fragment,
            )
    return woven, needs


@remembered
def _spliced(
    key: str,
    text: Traced,
    splices: tuple[Splice, ...],
    threaded: frozenset[str],
    shared: frozenset[tuple[str, str]],
) -> tuple[Traced, tuple[Need, ...], frozenset[str]]:
    """A definition with splices at its outer points; the inner ones come next time round.

    Args:
        splices: of all its points, in order of selection at each.
        shared: variables of the host that splices share, and their fragments.

    Returns:
        The text, what has to be brought to the splices, and the names of the points that are gone.
    """
    points, needs, edits = find_points(key, text), list[Need](), []
    outer = [p for p in points.values() if not any(p.inside(other) for other in points.values())]
    scopes: dict[cst.FunctionDef, Scope] = {}
    for point in outer:
        chosen = [splice for splice in splices if splice.point == point.name]
        if point.fields_of:
            edits.append(_edit(point, [(splice, as_fields(splice, point, point.fields_of)) for splice in chosen]))
            continue
        host = point.hosts[0]
        if host not in scopes:
            there = {other.name for other in outer if other.hosts and other.hosts[0] is host}
            scopes[host] = Scope.of(host, [splice for splice in splices if splice.point in there], dict(shared))
        _check_one_replaces(chosen, point)
        chosen = in_order(chosen, point.where)
        adapted = [(splice, adapt(splice, point, scopes[host], threaded, needs)) for splice in chosen]
        edits.append(_edit(point, adapted))
    return text.edited(edits), tuple(needs), frozenset(point.name for point in outer)


def _edit(point: Point, bodies: list[tuple[Splice, Traced]]) -> Edit:
    """The edit that replaces a point by its splices, in order."""
    source, width = point.source, point.source.indent(point.statement)
    start = source.text.rfind("\n", 0, source.span(point.statement)[0]) + 1
    end = source.lines(point.statement)[1]
    if point.is_block:
        inside = _nested(point, bodies)
        _check_bound(point, inside, [splice for splice, _ in bodies])
        if _is_nothing(inside):
            return Edit(start, end, syntax.placeholder(point.statement, source))
        return _returned_block(point, inside, start) or Edit(start, end, syntax.reindent(inside, width))
    for splice, body in bodies:
        _proceeds(splice, body, point)
    bodies = [(splice, body) for splice, body in bodies if not _is_nothing(body)]
    if not bodies:
        return _returned(point, start, end) or Edit(start, end, syntax.placeholder(point.statement, source))
    return Edit(start, end, Traced.join(syntax.reindent(body, width) for _, body in bodies))


def _is_nothing(body: Traced) -> bool:
    """Whether statements are a `pass`, as a branch leaves it that a setting decides against."""
    return body.text.strip() == "pass"


def _returned(point: Point, start: int, end: int) -> Edit | None:
    """`x = f(y)`, a point without splices, `return x`: written for the point's sake, and plainly `return f(y)`."""
    block = syntax.body(point.hosts[-1]) if point.hosts else ()
    index = next((i for i, statement in enumerate(block) if statement is point.statement), 0)
    if not 0 < index < len(block) - 1:
        return None
    value = _returned_value(block[index - 1], block[index + 1], point)
    if value is None:
        return None
    source = point.source
    (first, after), last = source.span(value), source.lines(block[index + 1])[1]
    written = source.traced[first:start]
    if "\n" in source.text[after:start].rstrip("\n") or "#" in source.text[end:last]:
        return None  # comments belong to what is said step by step
    opening = Traced.insert("return ", source.traced.origin_at(source.span(block[index + 1])[0]))
    return Edit(source.span(block[index - 1])[0], last, opening + written)


def _returned_block(point: Point, inside: Traced, start: int) -> Edit | None:
    """The same for `with point(...):`, of which one line `x = f(y)` came, and `return x` after it."""
    block, source = syntax.body(point.hosts[-1]), as_block(inside)
    index = next((i for i, statement in enumerate(block) if statement is point.statement), len(block) - 1)
    statements = syntax.body(source.module.body[0])
    if index == len(block) - 1 or len(statements) > 1 or len(inside.text.strip().splitlines()) > 1:
        return None
    value = _returned_value(statements[0], block[index + 1], point)
    if value is None:
        return None
    margin, origin = " " * point.source.indent(point.statement), point.source.traced.origin_at(start)
    written = source.traced[source.span(value)[0] : source.lines(statements[0])[1]]
    return Edit(start, point.source.lines(block[index + 1])[1], Traced.insert(f"{margin}return ", origin) + written)


def _returned_value(first: cst.CSTNode, second: cst.CSTNode, point: Point) -> cst.BaseExpression | None:
    """`f(y)` of the statements `x = f(y)` and `return x`, where x is of no use to anything else."""
    before, after = syntax.simple(first), syntax.simple(second)
    if not (isinstance(before, cst.Assign) and isinstance(after, cst.Return) and len(before.targets) == 1):
        return None
    name, returned, scopes = before.targets[0].target, after.value, scopes_of(point.source.module)
    if not (isinstance(name, cst.Name) and isinstance(returned, cst.Name) and name.value == returned.value):
        return None
    host = scopes.inner[point.hosts[-1]]
    seen = {
        scope for node, scope in scopes.occurrences if node.value == name.value and scope.binder(node.value) is host
    }
    return before.value if seen <= {host} and name.value not in host.outer else None


def _nested(point: Point, bodies: list[tuple[Splice, Traced]]) -> Traced:
    """The statements of a block point in its splices; each one wraps what there is, so the last is the outermost."""
    statements = syntax.body(point.statement)
    inside = point.source.traced[point.source.lines(statements[0])[0] : point.source.lines(statements[-1])[1]]
    for number, (splice, body) in enumerate(bodies):
        if _proceeds(splice, body, point):
            inside = _wrap(body, inside)
        elif number == 0:
            inside = body
        else:
            raise LoomError(
                f"{splice.fragment} replaces the statements at {point.where}, among them those of "
                f"{bodies[number - 1][0].fragment} ({bodies[number - 1][0].origin})",
                str(splice.origin),
                "Say proceed() where they go, or put this splice first: before=...",
            )
    return inside


def _check_one_replaces(splices: list[Splice], point: Point) -> None:
    """Of the splices at a block point, one may replace its statements: in no order can two."""
    replacing = [splice for splice in splices if point.is_block and not _proceeds(splice, splice.body, point)]
    for other in replacing[1:]:
        one = replacing[0]
        message = f"{one.fragment} ({one.origin}) and {other.fragment} both replace the statements at {point.where}"
        raise LoomError(message, str(other.origin), "Select one of the two, or say proceed() in one, to wrap them.")


def _proceeds(splice: Splice, body: Traced, point: Point) -> bool:
    """Whether a splice says `proceed()`; it must be a statement of its own, and the point one with statements."""
    source = as_block(body)
    said = [node for node in syntax.walk(source.module) if syntax.called(node) == "proceed"]
    alone = [statement for statement in syntax.walk(source.module) if syntax.expression(statement) in said]
    if said and not point.is_block:
        message = f"{splice.fragment} says proceed(), and the point {point.name!r} ({point.where}) holds no statements"
        remedy = "Drop proceed(): there is nothing to wrap. The points that gen points marks `with` hold statements."
        raise LoomError(message, str(splice.origin), remedy)
    if len(said) > len(alone):
        message = f"{splice.fragment} says proceed() inside a statement, at {point.name!r}"
        raise LoomError(message, str(splice.origin), "Write it on a line of its own.")
    for node in syntax.walk(source.module):
        below = {id(inner) for inner in syntax.walk(node)} if isinstance(node, _OTHER_SCOPES + _LOOPS) else set()
        if not any(id(statement) in below for statement in alone):
            continue
        if isinstance(node, _OTHER_SCOPES):
            message = f"{splice.fragment} says proceed() in a function or class of its own, at {point.name!r}"
            raise LoomError(message, str(splice.origin), "The statements of the host cannot stand there: move it out.")
        if _leaves_loop(point.statement):
            message = f"{splice.fragment} says proceed() in a loop, and the statements at {point.where} leave theirs"
            raise LoomError(message, str(splice.origin), "Proceed without a loop around it.")
    return bool(said)


def _leaves_loop(statement: cst.CSTNode) -> bool:
    """Whether a `break` or `continue` below belongs to a loop around a statement."""
    if isinstance(statement, _LOOPS):
        return statement.orelse is not None and _leaves_loop(statement.orelse)
    inner = (child for child in syntax.children(statement) if not isinstance(child, _OTHER_SCOPES))
    return isinstance(statement, (cst.Break, cst.Continue)) or any(map(_leaves_loop, inner))


def _check_bound(point: Point, inside: Traced, splices: list[Splice]) -> None:
    """What the statements of a block bind for the rest of their function, is bound by what takes their place."""
    host, within = point.hosts[-1], {id(node) for node in syntax.walk(point.statement)}
    read = {name.value for name in variables(host) if id(name) not in within}
    elsewhere = {name for node in syntax.walk(host) if id(node) not in within for name in bound_by(node)}
    elsewhere |= {parameter.name.value for parameter in syntax.parameters(host)}
    names = (bound_names(cst.ensure_type(point.statement, cst.With).body, comprehensions=False) & read) - elsewhere
    if names and splices:
        head = "async def _():\n" if host.asynchronous else "def _():\n"
        (function,) = ast.parse(head + syntax.reindent(inside, 4).text).body
        missing = sorted(names - Flow(cast(ast.FunctionDef, function), names).bound)
        if missing:
            message = (
                f"{splices[-1].fragment} may leave {missing[0]} without a value, which the statements at {point.where}"
            )
            raise LoomError(
                f"{message} give it", str(splices[-1].origin), "Bind it on every path, or proceed on every path."
            )


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
