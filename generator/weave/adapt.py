"""Hygiene: adapts the body of a splice to the names of its host, so that no name of either is captured.

A splice shares the names of its parameters with its host, and expressions that the point shows replace their keywords.
A local name of a splice that the host has too is an error. Splices may have the same local name where none can see what
another one binds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from generator.code.assignment import DefiniteAssignment
from generator.code.bindings import COMPREHENSIONS, Scope, Scopes, as_operand, bound_names, names_in, scopes_of
from generator.code.concrete import indent
from generator.code.renaming import replace_names
from generator.code.traced import Origin, Traced
from generator.code.tree import FUNCTIONS, Function, TracedTree, blocks, called_name, dotted_name, parse, walk
from generator.errors import LoomError
from generator.language.parts import Splice
from generator.weave.points import Point


@dataclass(frozen=True)
class Need:
    """A value that threading must bring: a splice in `function` reads `name`, which its point does not show.

    Attributes:
        is_local: whether the splice binds the name, and threading must not bring a value of this name.
        is_optional: whether the name may be one that is not threaded.
    """

    function: str
    name: str
    fragment: str
    origin: Origin
    point: str
    point_where: str
    is_local: bool = False
    is_optional: bool = False


@dataclass
class HostNames:
    """The names in an outermost host function, and those of its splices as they are added.

    Attributes:
        reserved: every variable but those of comprehensions, and the free names of splices to come.
        bound: the names that the host itself binds, as a parameter or in a statement.
        shared: variables that the splices of one fragment share, and that fragment.
        local: local name of splices -> those that bind it, and their points.
    """

    reserved: set[str]
    bound: set[str]
    shared: dict[str, str]
    local: dict[str, list[tuple[Splice, Point]]] = field(default_factory=dict)

    @classmethod
    def of(cls, host: Function, scopes: Scopes, splices: Iterable[Splice], shared: Mapping[str, str]) -> HostNames:
        """Returns the names of a host, in these scopes, that gets these splices."""
        nodes = set(walk(host))
        binders = [(use.name, use.binder) for use in scopes.occurrences if use.node in nodes]
        outside = {name for name, binder in binders if binder is None or not isinstance(binder.node, COMPREHENSIONS)}
        reserved = names_in(host) - ({name for name, _ in binders} - outside) | shared.keys()
        for splice in splices:
            reserved |= scopes_of(TracedTree(splice.body).tree).outside() - set(splice.reads)
        bound = bound_names(host, parameters=True) | shared.keys()
        return cls(reserved, bound, dict(shared))


def adapt(splice: Splice, point: Point, names: HostNames, needs: list[Need]) -> Traced:
    """Returns the body of a splice in the names of the host.

    Args:
        names: of the host; those of the splice are added.
        needs: the values that the splice reads and the point does not show are added.
    """
    body = TracedTree(splice.body)
    scopes, reads = scopes_of(body.tree), set(splice.reads)
    _check_captures(splice, point, body)
    _check_free(splice, point, scopes.outside() - reads, names)
    _check_rebound(splice, point, scopes.bound)
    _check_yield(splice, point, body)
    _check_introspection(splice, point, body)
    shared = {name for name, fragment in names.shared.items() if fragment == splice.fragment}
    visible = {*point.named, *point.shown, *shared, *({"self"} if point.in_method else ())}
    own = scopes.bound - reads - shared - _unread(point, body)
    emitted = _check_local(splice, point, own, names)
    unseen = [(name, False) for name in splice.reads if name not in visible]
    for name, is_local in [*unseen, *((name, True) for name in sorted(own - emitted))]:
        needs.append(Need(point.function, name, splice.fragment, splice.origin, point.name, point.where, is_local))
    return replace_names(body.traced, {name: as_operand(text) for name, text in point.named.items() if name in reads})


def adapt_fields(splice: Splice, point: Point, host: ast.ClassDef) -> Traced:
    """Returns the fields that a splice adds to a class; they keep their names."""
    if splice.reads:
        raise _error(splice, f"reads {splice.reads[0]} among the fields of a class, at {point.where}", "Drop it.")
    bound = scopes_of(TracedTree(splice.body).tree).bound
    replaced = bound_names(*point.block) if point.is_block else set()
    if twice := sorted((bound - replaced) & scopes_of(point.source.tree).inner[host].bound):
        raise _error(splice, f"defines {twice[0]}, which the class at {point.where} has", "Give it another name.")
    return splice.body


def _unread(point: Point, body: TracedTree) -> set[str]:
    """Returns `_` if neither the host nor a splice reads it: then each may bind it."""
    nodes = [*walk(point.hosts[0]), *walk(body.module)]
    return (
        set()
        if any(isinstance(node, ast.Name) and node.id == "_" and isinstance(node.ctx, ast.Load) for node in nodes)
        else {"_"}
    )


def _error(splice: Splice, message: str, remedy: str) -> LoomError:
    return LoomError(f"{splice.fragment} {message}", str(splice.origin), remedy)


def _check_local(splice: Splice, point: Point, own: set[str], names: HostNames) -> set[str]:
    """Refuses a local name that the host has, or that another splice has and either may see; adds it to the names.

    Returns:
        The names that the splice emits.
    """
    body = TracedTree(splice.body)
    calls = [node for node in walk(body.module) if isinstance(node, ast.Call) and called_name(node) == "emit"]
    emitted = own & {dotted_name(argument) for call in calls for argument in call.args}
    for name in sorted(own):
        verb, others = "emits" if name in emitted else "binds", names.local.setdefault(name, [])
        if name in names.reserved:
            sharing, where = names.shared.get(name), f"the host at {point.where}"
            message = f"which splices of {sharing} share in {where}" if sharing else f"which is also a name in {where}"
            first = (
                f"Take it as a parameter, as the point {point.name!r} shows it; or give"
                if name in point.shown
                else "Give"
            )
            raise _error(
                splice, f"{verb} {name}, {message}", f"{first} it another name, or make a function of the lines."
            )
        others.append((splice, point))
        around = [other for other, at in others[:-1] if at is point and point.is_block]
        if len(others) > 1 and (emitted or around or not all(_is_alone(name, other) for other, _ in others)):
            other = others[0][0]
            message = (
                f"{verb} {name}, and so does {other.fragment} ({other.origin}): one may see the value of the other"
            )
            raise _error(splice, message, "Give it another name, or make a function of the lines.")
    names.reserved |= emitted
    return emitted


def _is_alone(name: str, splice: Splice) -> bool:
    """Returns whether a splice binds a local before each read of it, and reads it at once: not in a function."""
    scopes = scopes_of(TracedTree(splice.body).tree)
    late = (*FUNCTIONS, ast.Lambda, ast.GeneratorExp)
    for use in (use for use in scopes.occurrences if use.name == name and use.binder is scopes.module):
        scope: Scope | None = use.scope
        while scope is not None:
            if isinstance(scope.node, late):
                return False
            scope = scope.parent
    return not DefiniteAssignment(as_function(splice.body), [name]).unbound


def as_function(body: Traced, is_async: bool = False) -> ast.FunctionDef:
    """Returns a function of these statements."""
    head = "async def _():\n" if is_async else "def _():\n"
    return cast(ast.FunctionDef, parse(head + indent(body, 4).text).statements[0])


def _check_captures(splice: Splice, point: Point, body: TracedTree) -> None:
    """Refuses a splice that changes a name in an expression which the point shows: it is evaluated at each use."""
    scopes = scopes_of(body.tree)
    for name in sorted(set(point.named) & set(splice.reads)):
        shown = f"{name}, which the point {point.name!r} shows as {point.named[name]}"
        if name in scopes.bound:
            remedy = "Bind another name; or show the local name, in a host of yours."
            raise _error(splice, f"rebinds {shown}", remedy)
        changed = _rebound_before(name, body, scopes.bound & set(splice.reads)) & point.names_in(name)
        for _, _, scope in (use for use in scopes.occurrences if use.name == name):
            for other in point.names_in(name):
                is_hidden = scope.binder(other) not in (None, scopes.module)
                if is_hidden or (other in scopes.bound and scope.is_late):
                    changed.add(other)
        if changed:
            remedy = f"Read {name} before {min(changed)} is bound, or give that another name in a comprehension; or "
            remedy += "compute it before the point, in a host of yours."
            raise _error(splice, f"binds {min(changed)}, and reads {shown}", remedy)


def _rebound_before(name: str, body: TracedTree, candidates: set[str]) -> set[str]:
    """Returns the candidates that a statement rebinds before a read of `name`, or in one compound statement with it."""
    changed, before = set[str](), set[str]()
    for statement in body.statements:
        rebound = bound_names(statement) & candidates
        if name in names_in(statement):
            before |= changed | (rebound if any(blocks(statement)) else set())
        changed |= rebound
    return before


def _check_free(splice: Splice, point: Point, free: set[str], names: HostNames) -> None:
    """Refuses a free name of a splice that the host would capture, and in a class one that Python would mangle."""
    for name in sorted(free) if point.owner else ():
        if name.startswith("__") and not name.endswith("__"):
            raise _error(splice, f"uses {name}, which means another name in a class", "Let it begin with one _.")
    for name in sorted(free & names.bound):
        shown = name in point.shown or name in point.named
        remedy = f"Add the parameter {name} to the splice." if shown else "Give one of them another name."
        message = f"uses {name}, which is not a parameter of the splice, but a variable of the host at {point.where}"
        raise _error(splice, message, remedy)


def _check_rebound(splice: Splice, point: Point, bound: set[str]) -> None:
    """Refuses to rebind a variable of a function around that of the point."""
    host = scopes_of(point.source.tree).inner[point.hosts[-1]]
    outer = sorted(name for name in bound & set(point.shown) if name not in host.bound or name in host.outer)
    if outer:
        message = f"rebinds {outer[0]}, which is not a variable of {point.hosts[-1].name} at {point.where}"
        raise _error(splice, message, "Bind another name, or show a variable of the function.")


def _check_yield(splice: Splice, point: Point, body: TracedTree) -> None:
    """Refuses a yield in a host that is not a generator."""
    host, yields = point.hosts[-1], (ast.Yield, ast.YieldFrom)
    if any(isinstance(node, yields) for node in walk(body.module, into=False)):
        annotation = ast.unparse(host.returns) if host.returns else ""
        generates = any(isinstance(node, yields) for node in walk(host, into=False))
        if not generates and not re.search("Iterator|Generator|Iterable", annotation):
            message = f"yields, which would make a generator of the host at {point.where}"
            raise _error(splice, message, "Annotate the host as `-> Iterator[...]` if it is one.")


def _check_introspection(splice: Splice, point: Point, body: TracedTree) -> None:
    """Refuses to delete a name of the host, and to look up names, which may be renamed."""
    for node in walk(body.module):
        if isinstance(node, ast.Delete):
            deleted = {target.id for target in node.targets if isinstance(target, ast.Name)} & {*splice.reads}
            if deleted:
                message = f"deletes {min(deleted)}, which the host at {point.where} may read"
                raise _error(splice, message, "Bind it to another value, or leave it.")
        elif isinstance(node, ast.Call):
            by_name = ("locals", "exec", "eval", *(() if node.args else ("vars", "dir")))
            if (name := called_name(node)) in by_name and isinstance(node.func, ast.Name):
                message = f"calls {name}, which looks names up that may be others in the host at {point.where}"
                raise _error(splice, message, "Name the variables themselves.")
