"""The splice operator: puts statements of fragments at the join points of hosts.

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

from generator.code.assignment import DefiniteAssignment
from generator.code.bindings import bound_name, bound_names, scopes_of
from generator.code.caching import cached
from generator.code.edits import Edits
from generator.code.traced import Traced
from generator.code.tree import (
    SCOPES,
    Function,
    TracedTree,
    called_name,
    children,
    parameters,
    statement_expression,
    walk,
)
from generator.errors import LoomError, nearest
from generator.language.parts import Definition, Splice
from generator.weave.adapt import HostNames, Need, adapt, adapt_fields, as_function
from generator.weave.branches import check_branches, find_branches
from generator.weave.generators import complete_generators
from generator.weave.order import sort_splices
from generator.weave.points import Point, find_points
from generator.weave.shared import Shared, check_shared_bound, find_shared

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def weave_splices(
    definitions: dict[str, Definition],
    splices: Iterable[Splice],
    explain: Callable[[Splice], str | None] = lambda splice: None if splice.optional else "",
) -> tuple[dict[str, Definition], list[Need]]:
    """Puts all splices in place and removes the points.

    Args:
        definitions: key -> definition.
        splices: of the selected fragments, in order of selection.
        explain: returns why no host has the point of a splice, '' if nothing explains it, None if it may be left out.

    Returns:
        The definitions, and the values that threading must bring to spliced statements.
    """
    woven, needs = dict(definitions), list[Need]()
    by_point: dict[str, list[Splice]] = {}
    points_of: dict[str, set[str]] = {}
    for splice in splices:
        by_point.setdefault(splice.point, []).append(splice)
        points_of.setdefault(splice.fragment, set()).add(splice.point)
    hosts: dict[str, Point] = {}
    for key, definition in definitions.items():
        text, done = definition.text, set[str]()
        shared: Shared = {}
        while points := find_points(key, text):
            shared = find_shared(points.values(), by_point, shared)  # points in splices come up in later rounds
            owners = frozenset((name, splice.fragment) for name, splice in shared.items())
            for name, point in points.items():
                if name in done:
                    raise LoomError(f"the point {name!r} is in a splice for itself", point.where, "Remove it there.")
                if hosts.setdefault(name, point).key != key:
                    remedy = "Give one of them another name, or select only one of the hosts."
                    raise LoomError(f"the point {name!r} is also at {hosts[name].where}", point.where, remedy)
                if any(map(find_branches, by_point.get(name, ()))):
                    check_branches(point, _in_order(by_point[name], point), points_of)
            chosen = tuple(splice for name in points for splice in by_point.get(name, ()))
            text, more, filled = _splice_definition(key, text, chosen, owners)
            needs += more
            done |= filled
        text = text if text is definition.text else complete_generators(text)
        check_shared_bound(text, shared)
        woven[key] = definition if text is definition.text else replace(definition, text=text)
    for splice in (splice for name, some in by_point.items() if name not in hosts for splice in some):
        if (why := explain(splice)) is not None:
            raise LoomError(
                f"{splice.fragment} splices into the point {splice.point!r}, which no selected fragment has",
                str(splice.origin),
                why or f"{nearest(splice.point, hosts)} Or write optional=True.",
                dependent=splice.fragment,
            )
    return woven, needs


@cached
def _splice_definition(
    key: str,
    text: Traced,
    splices: tuple[Splice, ...],
    shared: frozenset[tuple[str, str]],
) -> tuple[Traced, tuple[Need, ...], frozenset[str]]:
    """Puts splices at the outer points of a definition; the inner ones follow in the next round.

    Args:
        splices: of all its points, in order of selection at each.
        shared: variables of the host that splices share, and their fragments.

    Returns:
        The text, the values that threading must bring to the splices, and the names of the replaced points.
    """
    points, needs, edits = find_points(key, text), list[Need](), Edits(TracedTree(text))
    outer = [p for p in points.values() if not any(p.inside(other) for other in points.values())]
    names: dict[Function, HostNames] = {}
    for point in outer:
        chosen = [splice for splice in splices if splice.point == point.name]
        if not point.hosts and point.owner:
            fields = [(splice, adapt_fields(splice, point, point.owner)) for splice in chosen]
            _replace_point(edits, point, fields)
            continue
        host = point.hosts[0]
        if host not in names:
            own = {other.name for other in outer if other.hosts[:1] == (host,)}
            inside = [splice for splice in splices if splice.point in own]
            names[host] = HostNames.of(host, scopes_of(edits.source.tree), inside, dict(shared))
        _check_one_replaces(chosen, point)
        chosen = _in_order(chosen, point)
        adapted = [(splice, adapt(splice, point, names[host], needs)) for splice in chosen]
        _replace_point(edits, point, adapted)
    return edits.made(), tuple(needs), frozenset(point.name for point in outer)


def _in_order(splices: list[Splice], point: Point) -> list[Splice]:
    """Returns the splices of a point in order; at a block, the one that replaces its statements goes first."""
    replacing = [s for s in splices if point.is_block and "proceed(" not in s.body.text]
    return sort_splices([*replacing, *(s for s in splices if s not in replacing)], point.where, replacing)


def _replace_point(edits: Edits, point: Point, bodies: list[tuple[Splice, Traced]]) -> None:
    """Replaces a point by its splices, in order."""
    if isinstance(point.statement, ast.With):
        inside = _fill_block(point, bodies)
        _check_block_binds(point, inside, [splice for splice, _ in bodies])
        texts = [inside]
    else:
        for splice, body in bodies:
            _has_proceed(splice, body, point)
        texts = [body for _, body in bodies]
    texts = [text for text in texts if not _is_only_pass(text)]
    edits.put(point.statement, [statement for text in texts for statement in edits.copy(text)])


def _is_only_pass(body: Traced) -> bool:
    """Returns whether statements are only `pass`, as an unselected branch of a setting leaves them."""
    return body.text.strip() == "pass"


def _fill_block(point: Point, bodies: list[tuple[Splice, Traced]]) -> Traced:
    """Returns the statements of a block point inside its splices, of which the last is the outermost."""
    inside = point.source.lines(point.block[0], point.block[-1])
    for number, (splice, body) in enumerate(bodies):
        if _has_proceed(splice, body, point):
            inside = _wrap_block(body, inside)
        elif number == 0:
            inside = body
        else:
            other = bodies[number - 1][0]
            message = f"replaces the statements at {point.where}, among them those of {other.fragment} ({other.origin})"
            remedy = "Call proceed() where they go, or put this splice first: before=..."
            raise LoomError(f"{splice.fragment} {message}", str(splice.origin), remedy)
    return inside


def _check_one_replaces(splices: list[Splice], point: Point) -> None:
    """Refuses two splices that both replace the statements of a block point."""
    replacing = [splice for splice in splices if point.is_block and not _has_proceed(splice, splice.body, point)]
    for other in replacing[1:]:
        one = replacing[0]
        message = f"{one.fragment} ({one.origin}) and {other.fragment} both replace the statements at {point.where}"
        raise LoomError(message, str(other.origin), "Select one of the two, or call proceed() in one, to wrap them.")


def _has_proceed(splice: Splice, body: Traced, point: Point) -> bool:
    """Returns whether a splice has `proceed()`, and refuses it anywhere but as a statement at a block point."""
    if "proceed(" not in body.text:
        return False
    nodes = list(walk(TracedTree(body).module))
    calls = [node for node in nodes if called_name(node) == "proceed"]
    alone = {node for node in nodes if statement_expression(node) in calls}
    if calls and not point.is_block:
        message = f"calls proceed(), and the point {point.name!r} ({point.where}) holds no statements"
        remedy = "Drop proceed(): there is nothing to wrap. The points that gen points marks `with` hold statements."
        raise LoomError(f"{splice.fragment} {message}", str(splice.origin), remedy)
    if len(calls) > len(alone):
        message = f"{splice.fragment} calls proceed() inside a statement, at {point.name!r}"
        raise LoomError(message, str(splice.origin), "Write it on a line of its own.")
    for node in (n for n in nodes if isinstance(n, SCOPES + _LOOPS) and alone.intersection(walk(n))):
        if isinstance(node, SCOPES):
            message = f"{splice.fragment} calls proceed() in a function or class of its own, at {point.name!r}"
            raise LoomError(message, str(splice.origin), "The statements of the host cannot stand there: move it out.")
        if _leaves_loop(point.statement):
            message = f"{splice.fragment} calls proceed() in a loop, and the statements at {point.where} leave theirs"
            raise LoomError(message, str(splice.origin), "Proceed without a loop around it.")
    return bool(calls)


def _leaves_loop(statement: ast.AST) -> bool:
    """Returns whether a `break` or `continue` in a statement belongs to a loop around it."""
    inner = getattr(statement, "orelse", []) if isinstance(statement, _LOOPS) else children(statement)
    return isinstance(statement, (ast.Break, ast.Continue)) or any(
        _leaves_loop(child) for child in inner if not isinstance(child, SCOPES)
    )


def _check_block_binds(point: Point, inside: Traced, splices: list[Splice]) -> None:
    """Refuses splices that leave a name unbound which the statements of a block bind for the rest of their function."""
    if not splices or not point.hosts:  # fields of a class, which no statement beside them reads
        return
    host, within = point.hosts[-1], set(walk(point.statement))
    outside = [node for node in walk(host) if node not in within]
    read = {node.id for node in outside if isinstance(node, ast.Name)}
    elsewhere = {bound_name(node) for node in outside} | {parameter.arg for parameter in parameters(host)}
    if names := (bound_names(*point.block, comprehensions=False) & read) - elsewhere:
        function = as_function(inside, isinstance(host, ast.AsyncFunctionDef))
        missing = sorted(names - DefiniteAssignment(function, names).bound)
        if missing:
            message = f"may leave {missing[0]} without a value, which the statements at {point.where} give it"
            remedy = "Bind it on every path, or proceed on every path."
            raise LoomError(f"{splices[-1].fragment} {message}", str(splices[-1].origin), remedy)


def _wrap_block(body: Traced, inside: Traced) -> Traced:
    """Returns a splice at a block point with the statements of the host in place of `proceed()`."""
    edits = Edits(source := TracedTree(body))
    for node in walk(source.module):
        if called_name(statement_expression(node)) == "proceed":
            edits.put(cast(ast.stmt, node), edits.copy(inside))
    return edits.made()
