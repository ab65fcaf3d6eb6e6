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

from collections.abc import Callable, Iterable
from dataclasses import replace

import libcst as cst

from generator.code import syntax
from generator.code.names import as_block, unblocked
from generator.code.traced import Edit, Traced
from generator.errors import LoomError, nearest
from generator.language.parts import Definition, Splice
from generator.weave.adapt import Need, Scope, adapt
from generator.weave.order import in_order
from generator.weave.points import Point, find_points


def weave_splices(
    definitions: dict[str, Definition],
    splices: Iterable[Splice],
    threaded: Iterable[str] = (),
    elsewhere: Callable[[str], str] = lambda point: "",
) -> tuple[dict[str, Definition], list[Need]]:
    """Puts all splices in place and removes the points.

    Args:
        definitions: key -> definition.
        splices: of the selected fragments, in order of selection.
        threaded: names of the values that travel through functions.
        elsewhere: what to say of a point that is in no host here, if anything.

    Returns:
        The definitions, and what the threading operator has to bring to spliced statements.

    Raises:
        LoomError: a point that no host has, two hosts with one point, an order that is missing or goes in a circle, a
            splice whose names would mean something else in the host.
    """
    splices, carried = list(splices), frozenset(threaded)
    woven = dict(definitions)
    needs: list[Need] = []
    hosts: dict[str, Point] = {}
    done: set[str] = set()
    while points := find_points(woven):
        hosts |= points
        # the inner ones come next time round
        outer = {name: p for name, p in points.items() if not any(p.inside(other) for other in points.values())}
        edits: dict[str, list[Edit]] = {}
        scopes: dict[cst.FunctionDef, Scope] = {}
        for name, point in outer.items():
            if name in done:
                raise LoomError(f"the point {name!r} is in a splice for itself", point.where, "Remove it there.")
            chosen = [splice for splice in splices if splice.point == name]
            _check_one_replaces(chosen, point)
            chosen = in_order(chosen, point.where)
            if point.hosts[0] not in scopes:
                there = {n for n, other in outer.items() if other.hosts[0] is point.hosts[0]}
                scopes[point.hosts[0]] = Scope.of(point.hosts[0], [s for s in splices if s.point in there])
            adapted = [(splice, adapt(splice, point, scopes[point.hosts[0]], carried, needs)) for splice in chosen]
            edits.setdefault(point.key, []).append(_edit(point, adapted))
        done |= set(outer)
        for key, changes in edits.items():
            woven[key] = replace(woven[key], text=woven[key].text.edited(changes))
    for splice in splices:
        if splice.point not in hosts and not splice.optional:
            raise LoomError(
                f"{splice.fragment} splices into the point {splice.point!r}, which no selected fragment has",
                str(splice.origin),
                elsewhere(splice.point) or f"{nearest(splice.point, hosts)} Or say optional=True.",
                dependent=splice.fragment,
            )
    return woven, needs


def _edit(point: Point, bodies: list[tuple[Splice, Traced]]) -> Edit:
    """The edit that replaces a point by its splices, in order."""
    source, width = point.source, point.source.indent(point.statement)
    start = source.text.rfind("\n", 0, source.span(point.statement)[0]) + 1
    end = source.lines(point.statement)[1]
    if point.is_block:
        inside = _nested(point, bodies)
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
    block = syntax.body(point.hosts[-1])
    index = next((i for i, statement in enumerate(block) if statement is point.statement), 0)
    if not 0 < index < len(block) - 1:
        return None
    value = _returned_value(block[index - 1], block[index + 1])
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
    value = _returned_value(statements[0], block[index + 1])
    if value is None:
        return None
    margin, origin = " " * point.source.indent(point.statement), point.source.traced.origin_at(start)
    written = source.traced[source.span(value)[0] : source.lines(statements[0])[1]]
    return Edit(start, point.source.lines(block[index + 1])[1], Traced.insert(f"{margin}return ", origin) + written)


def _returned_value(first: cst.CSTNode, second: cst.CSTNode) -> cst.BaseExpression | None:
    """`f(y)` of the statements `x = f(y)` and `return x`."""
    before, after = syntax.simple(first), syntax.simple(second)
    if not (isinstance(before, cst.Assign) and isinstance(after, cst.Return) and len(before.targets) == 1):
        return None
    name = before.targets[0].target
    same = isinstance(name, cst.Name) and isinstance(after.value, cst.Name) and name.value == after.value.value
    return before.value if same else None


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
    found = False
    for node in syntax.walk(as_block(body).module):
        if isinstance(node, (cst.FunctionDef, cst.Lambda)):
            inner = any(
                isinstance(below, cst.Call) and syntax.called(below) == "proceed" for below in syntax.walk(node)
            )
            if inner:
                message = f"{splice.fragment} says proceed() in a function of its own, at {splice.point!r}"
                raise LoomError(
                    message, str(splice.origin), "The statements of the host cannot stand there: move it out."
                )
        found = found or (isinstance(node, cst.Call) and syntax.called(node) == "proceed")
    if found and not point.is_block:
        message = f"{splice.fragment} says proceed(), and the point {point.name!r} ({point.where}) holds no statements"
        remedy = "Drop proceed(): there is nothing to wrap. The points that gen points marks `with` hold statements."
        raise LoomError(message, str(splice.origin), remedy)
    return found


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
