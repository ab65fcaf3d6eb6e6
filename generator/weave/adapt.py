"""Puts the body of a splice into the names of its host, so that no name of either means something else.

A splice shares with its host the names of its parameters. Its own local names are renamed where the host has them;
expressions that the point shows take the place of their keywords. What cannot be renamed is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from generator.code.bindings import (
    COMPREHENSIONS,
    bound_names,
    imported,
    inner_parameters,
    names_in,
    operand,
    scopes_of,
)
from generator.code.traced import Edit, Origin, Traced
from generator.code.tree import SCOPES, Function, TracedTree, blocks, called_name, dotted_name, walk
from generator.errors import LoomError
from generator.language.parts import Splice
from generator.weave.points import Point


@dataclass(frozen=True)
class Need:
    """A splice in `function` reads `name`, which its point does not show."""

    function: str
    name: str
    fragment: str
    origin: Origin
    point: str
    point_where: str


@dataclass
class HostNames:
    """The names in an outermost host function, its splices included as they come.

    Attributes:
        taken: every variable there is, and those that splices to come take from their modules.
        bound: those of the host's own that it binds, as a parameter or in a statement.
        shared: variables that the splices of one fragment share, and that fragment.
    """

    taken: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    shared: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, host: Function, splices: Iterable[Splice], shared: Mapping[str, str]) -> HostNames:
        """The names of a host that gets these splices."""
        taken = names_in(host) | shared.keys()
        for splice in splices:
            taken |= scopes_of(TracedTree(splice.body).tree).outside() - set(splice.reads)
        bound = bound_names(host) | inner_parameters(host) | shared.keys()
        return cls(taken, bound, dict(shared))


def adapt(splice: Splice, point: Point, names: HostNames, threaded: frozenset[str], needs: list[Need]) -> Traced:
    """The body of a splice in the names of the host.

    Args:
        names: of the host; the splice's are added.
        threaded: every name that is carried through functions, which no splice may have for its own.
        needs: what the splice reads beyond what the point shows is added.
    """
    body = TracedTree(splice.body)
    scopes, reads = scopes_of(body.tree), set(splice.reads)
    captured = _check_shown(splice, point, body)
    _check_free(splice, point, scopes.outside() - reads, names)
    _check_rebound(splice, point, scopes.bound)
    _check_yield(splice, point, body)
    _check_hidden(splice, point, body)
    mine = {name for name, fragment in names.shared.items() if fragment == splice.fragment}
    there = {*point.named, *point.shown, *mine, *({"self"} if point.in_method else ())}
    for name in splice.reads:
        if name not in there:
            needs.append(Need(point.function, name, splice.fragment, splice.origin, point.name, point.where))
    own = scopes.bound - reads - mine
    calls = [node for node in walk(body.module) if isinstance(node, ast.Call) and called_name(node) == "emit"]
    emitted = own & {dotted_name(argument) for call in calls for argument in call.args}
    clashes = own & (names.taken | threaded - emitted)
    for name in sorted(clashes & emitted):
        message = f"emits {name}, which is also a name in the host at {point.where}"
        raise _error(splice, message, "Give it another name.")
    taken = names.taken | {found.name for found in scopes.occurrences} | reads | threaded
    renamed = _fresh(clashes | captured, splice, taken)
    names.taken |= own - clashes | set(renamed.values())
    shown = {name: operand(text) for name, text in point.named.items() if name in reads}
    replaced = {name: new for name, new in renamed.items() if name in clashes} | shown
    return replace_names(body.traced, replaced, renamed)


def as_fields(splice: Splice, point: Point, host: ast.ClassDef) -> Traced:
    """The fields that a splice adds to a class: under their own names, by which others know them."""
    if splice.reads:
        raise _error(splice, f"reads {splice.reads[0]} among the fields of a class, at {point.where}", "Drop it.")
    bound = scopes_of(TracedTree(splice.body).tree).bound
    if twice := sorted(bound & scopes_of(point.source.tree).inner[host].bound):
        raise _error(splice, f"defines {twice[0]}, which the class at {point.where} has", "Give it another name.")
    return splice.body


def replace_names(text: Traced, replaced: Mapping[str, str], looped: Mapping[str, str] | None = None) -> Traced:
    """Statements with other names, or expressions, for what they read from outside or bind at their top.

    Args:
        looped: other names for the variables of comprehensions.
    """
    body, edits = TracedTree(text), []
    scopes = scopes_of(body.tree)
    for alias, scope in scopes.imports:
        if (name := imported(alias)) in replaced and scope is scopes.module:
            remedy = "Import it at the top of the fragment, or under another name."
            raise LoomError(f"{name} is imported here, and a name in the host too", body.where(alias), remedy)
    in_strings = {
        name: node for node in walk(body.module) if isinstance(node, ast.FormattedValue) for name in walk(node.value)
    }
    for name, node, scope in scopes.occurrences:
        binder = scope.binder(name)
        names = replaced if binder in (None, scopes.module) else looped or {}
        new = names.get(name, name) if binder is None or not isinstance(binder.node, SCOPES) else name
        if new == name:
            continue
        start, end = body.tree.span_of_name(node, name)
        if string := in_strings.get(node):
            after = body.text[body.span(string.value)[1] :].lstrip()
            if re.match("=(?!=)", after) or re.search(r"[\"'\\\n]", new):  # f"{name=}", and what Python 3.11 refuses
                message = f"{name} stands for {new} here, which cannot be written in this f-string"
                where = str(body.traced.origin_at(start))
                raise LoomError(message, where, "Give it a name of its own in a line above.")
            new = f"({new})" if new.startswith("{") else new
        edits.append(Edit(start, end, body.inserted(new, start)))
    return body.traced.edited(edits)


def _error(splice: Splice, message: str, remedy: str) -> LoomError:
    return LoomError(f"{splice.fragment} {message}", str(splice.origin), remedy)


def _check_shown(splice: Splice, point: Point, body: TracedTree) -> set[str]:
    """An expression that the point shows is read anew at each use, so nothing in it may change.

    Returns:
        The variables of comprehensions that have the name of one in an expression which is read there.
    """
    scopes, captured = scopes_of(body.tree), set[str]()
    for name in sorted(set(point.named) & set(splice.reads)):
        shown = f"{name}, which the point {point.name!r} shows as {point.named[name]}"
        if name in scopes.bound:
            remedy = "Bind another name; or show the local name, in a host of yours."
            raise _error(splice, f"rebinds {shown}", remedy)
        changed = _changed_before(name, body, scopes.bound & set(splice.reads)) & point.names_in(name)
        for _, _, scope in (found for found in scopes.occurrences if found.name == name):
            for other in point.names_in(name):
                binder = scope.binder(other)
                if binder not in (None, scopes.module):
                    (captured if isinstance(binder.node, COMPREHENSIONS) else changed).add(other)
                elif other in scopes.bound and scope.is_late:
                    changed.add(other)
        if changed:
            remedy = f"Read {name} before {min(changed)} is bound; or compute it before the point, in a host of yours."
            raise _error(splice, f"binds {min(changed)}, and reads {shown}", remedy)
    return captured


def _changed_before(name: str, body: TracedTree, candidates: set[str]) -> set[str]:
    """Those names that a statement rebinds before `name` is read, or in one compound statement with a read."""
    changed, found = set[str](), set[str]()
    for statement in body.statements:
        rebound = bound_names(statement) & candidates
        if name in names_in(statement):
            found |= changed | (rebound if any(blocks(statement)) else set())
        changed |= rebound
    return found


def _check_free(splice: Splice, point: Point, free: set[str], names: HostNames) -> None:
    """A name of the splice's module must not be a variable of the host; in a class, it must not be private."""
    for name in sorted(free) if point.owner else ():
        if name.startswith("__") and not name.endswith("__"):
            raise _error(splice, f"uses {name}, which means another name in a class", "Let it begin with one _.")
    for name in sorted(free & names.bound):
        shown = name in point.shown or name in point.named
        remedy = f"Add the parameter {name} to the splice." if shown else "Give one of them another name."
        message = f"uses {name}, which is not a parameter of the splice, but a variable of the host at {point.where}"
        raise _error(splice, message, remedy)


def _check_rebound(splice: Splice, point: Point, bound: set[str]) -> None:
    """What a splice rebinds is a variable of the function that the point is in."""
    host = scopes_of(point.source.tree).inner[point.hosts[-1]]
    outer = sorted(name for name in bound & set(point.shown) if name not in host.bound or name in host.outer)
    if outer:
        message = f"rebinds {outer[0]}, which is no variable of {point.hosts[-1].name} at {point.where}"
        raise _error(splice, message, "Bind another name, or show a variable of the function.")


def _check_yield(splice: Splice, point: Point, body: TracedTree) -> None:
    """A yield makes its function a generator: the host must be one."""
    host = point.hosts[-1]
    annotation = ast.unparse(host.returns) if host.returns else ""
    yields = (ast.Yield, ast.YieldFrom)
    if any(isinstance(node, yields) for node in walk(body.module, into=False)):
        generates = any(isinstance(node, yields) for node in walk(host, into=False))
        if not generates and not re.search("Iterator|Generator|Iterable", annotation):
            message = f"yields, which would make a generator of the host at {point.where}"
            raise _error(splice, message, "Annotate the host as `-> Iterator[...]` if it is one.")


def _check_hidden(splice: Splice, point: Point, body: TracedTree) -> None:
    """A splice may not take a name away from the host, nor look names up: its own may be others there."""
    for node in walk(body.module):
        if isinstance(node, ast.Delete):
            gone = {target.id for target in node.targets if isinstance(target, ast.Name)} & {*splice.reads}
            if gone:
                message = f"deletes {min(gone)}, which the host at {point.where} may read"
                raise _error(splice, message, "Bind it to another value, or leave it.")
        elif isinstance(node, ast.Call):
            by_name = ("locals", "exec", "eval", *(() if node.args else ("vars", "dir")))
            if (name := called_name(node)) in by_name and isinstance(node.func, ast.Name):
                message = f"calls {name}, which looks names up that may be others in the host at {point.where}"
                raise _error(splice, message, "Name the variables themselves.")


def _fresh(names: set[str], splice: Splice, taken: set[str]) -> dict[str, str]:
    """A new name for each, after the fragment, that nothing else has."""
    short = re.sub(r"\W", "_", splice.fragment.split("/")[-1])
    fresh: dict[str, str] = {}
    for name in sorted(names):
        new, number = f"{short}_{name}", 2
        while new in taken or new in fresh.values():
            new, number = f"{short}_{name}_{number}", number + 1
        fresh[name] = new
    return fresh
