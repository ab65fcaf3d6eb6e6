"""Puts the body of a splice into the names of its host, so that no name of either means something else.

A splice shares with its host the names of its parameters. Its own local names are renamed where the host has them;
expressions that the point shows take the place of their keywords. What cannot be renamed is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import libcst as cst

from generator.code import syntax
from generator.code.names import as_block, bound_names, inner_parameters, operand, unblocked, variables
from generator.code.scopes import scopes_of
from generator.code.syntax import Source
from generator.code.traced import Edit, Origin, Traced
from generator.errors import LoomError
from generator.language.grammar import own_nodes
from generator.language.parts import Splice
from generator.weave.points import Point

_LOOPED = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_CLOSED = (cst.FunctionDef, cst.Lambda, cst.ClassDef)  # what they bind is their own


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
class Scope:
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
    def of(cls, host: cst.FunctionDef, splices: Iterable[Splice], shared: Mapping[str, str]) -> Scope:
        """The scope of a host that gets these splices."""
        names = {node.value for node in variables(host)}
        free: set[str] = set()
        for splice in splices:
            body = as_block(splice.body).module
            free |= {node.value for node in variables(body)} - bound_names(body) - set(splice.reads)
        bound = bound_names(host) | inner_parameters(host) | shared.keys()
        return cls(names | free | shared.keys(), bound, dict(shared))


def adapt(splice: Splice, point: Point, scope: Scope, threaded: frozenset[str], needs: list[Need]) -> Traced:
    """The body of a splice in the names of the host.

    Args:
        scope: of the host; the splice's names are added.
        threaded: every name that is carried through functions, which no splice may have for its own.
        needs: what the splice reads beyond what the point shows is added.
    """
    body = as_block(splice.body)
    scopes = scopes_of(body.module)
    bound = scopes.module.bound
    free = {name.value for name, binder in scopes.meant() if binder is None}
    captured = _check_shown(splice, point, body)
    _check_free(splice, point, free - set(splice.reads), scope)
    _check_rebound(splice, point, bound)
    _check_yield(splice, point, body)
    mine = {name for name, fragment in scope.shared.items() if fragment == splice.fragment}
    there = {*point.named, *point.shown, *mine, *({"self"} if point.method else ())}
    for name in splice.reads:
        if name not in there:
            needs.append(Need(point.function, name, splice.fragment, splice.origin, point.name, point.where))
    own = bound - set(splice.reads) - mine
    emitted = own & _emitted(body.module)
    clashes = own & (scope.taken | threaded - emitted)
    for name in sorted(clashes & emitted):
        message = f"emits {name}, which is also a name in the host at {point.where}"
        raise _error(splice, message, "Give it another name.")
    taken = scope.taken | {name.value for name, _ in scopes.occurrences} | set(splice.reads) | threaded
    renamed = _fresh(clashes | captured, splice, taken)
    scope.taken |= own - clashes | set(renamed.values())
    shown = {name: operand(text) for name, text in point.named.items() if name in splice.reads}
    replaced = {name: new for name, new in renamed.items() if name in clashes} | shown
    return unblocked(replace_names(body, replaced, renamed))


def as_fields(splice: Splice, point: Point, host: cst.ClassDef) -> Traced:
    """The fields that a splice adds to a class: under their own names, by which others know them."""
    if splice.reads:
        raise _error(splice, f"reads {splice.reads[0]} among the fields of a class, at {point.where}", "Drop it.")
    bound = scopes_of(as_block(splice.body).module).module.bound
    if twice := sorted(bound & scopes_of(point.source.module).inner[host].bound):
        raise _error(splice, f"defines {twice[0]}, which the class at {point.where} has", "Give it another name.")
    return splice.body


def replace_names(body: Source, replaced: dict[str, str], looped: Mapping[str, str] | None = None) -> Traced:
    """Statements with other names, or expressions, for what they read from outside or bind at their top.

    Args:
        looped: other names for the variables of comprehensions.
    """
    scopes, edits = scopes_of(body.module), []
    for alias, scope in scopes.imports:
        name = (alias.evaluated_alias or alias.evaluated_name).split(".")[0]
        if name in replaced and scope is scopes.module:
            remedy = "Import it at the top of the fragment, or under another name."
            raise LoomError(f"{name} is imported here, and a name in the host too", body.where(alias), remedy)
    strings = [node for node in syntax.walk(body.module) if isinstance(node, cst.FormattedStringExpression)]
    quoted = {name: string for string in strings for name in syntax.walk(string.expression)}
    for node, scope in scopes.occurrences:
        binder = scope.binder(node.value)
        names = replaced if binder in (None, scopes.module) else looped or {}
        new = names.get(node.value, node.value) if not isinstance(binder and binder.node, _CLOSED) else node.value
        if new == node.value:
            continue
        string = quoted.get(node)
        if string and (string.equal or re.search(r"[\"'\\\n]", new)):
            message = f"{node.value} stands for {new} here, which cannot be written in this f-string"
            raise LoomError(message, body.where(node), "Give it a name of its own in a line above.")
        start, end = body.span(node)
        new = f"({new})" if string and new.startswith("{") else new
        edits.append(Edit(start, end, Traced.insert(new, body.traced.origin_at(start))))
    return body.traced.edited(edits)


def _error(splice: Splice, message: str, remedy: str) -> LoomError:
    return LoomError(f"{splice.fragment} {message}", str(splice.origin), remedy)


def _check_shown(splice: Splice, point: Point, body: Source) -> set[str]:
    """An expression that the point shows is read anew at each use, so nothing in it may change.

    Returns:
        The variables of comprehensions that have the name of one in an expression which is read there.
    """
    scopes, captured = scopes_of(body.module), set[str]()
    for name in sorted(set(point.named) & set(splice.reads)):
        shown = f"{name}, which the point {point.name!r} shows as {point.named[name]}"
        if name in scopes.module.bound:
            remedy = "Bind another name; or show the local name, in a host of yours."
            raise _error(splice, f"rebinds {shown}", remedy)
        changed = _changed_before(name, body, scopes.module.bound & set(splice.reads)) & point.names_in(name)
        for node, scope in scopes.occurrences:
            for other in point.names_in(name) if node.value == name else ():
                binder = scope.binder(other)
                if binder not in (None, scopes.module):
                    (captured if isinstance(binder.node, _LOOPED) else changed).add(other)
                elif other in scopes.module.bound and scope.is_late:
                    changed.add(other)
        if changed:
            remedy = f"Read {name} before {min(changed)} is bound; or compute it before the point, in a host of yours."
            raise _error(splice, f"binds {min(changed)}, and reads {shown}", remedy)
    return captured


def _changed_before(name: str, body: Source, candidates: set[str]) -> set[str]:
    """Those names that a statement rebinds before `name` is read, or in one compound statement with a read."""
    changed: set[str] = set()
    found: set[str] = set()
    for statement in syntax.body(body.module.body[0]):
        rebound = bound_names(statement) & candidates
        reads = any(node.value == name for node in variables(statement))
        found |= (changed if isinstance(statement, cst.SimpleStatementLine) else changed | rebound) if reads else set()
        changed |= rebound
    return found


def _check_free(splice: Splice, point: Point, names: set[str], scope: Scope) -> None:
    """A name of the splice's module must not be a variable of the host; in a class, it must not be private."""
    for name in sorted(names) if point.in_class else ():
        if name.startswith("__") and not name.endswith("__"):
            raise _error(splice, f"uses {name}, which means another name in a class", "Let it begin with one _.")
    for name in sorted(names & scope.bound):
        shown = name in point.shown or name in point.named
        remedy = f"Add the parameter {name} to the splice." if shown else "Give one of them another name."
        message = f"uses {name}, which is not a parameter of the splice, but a variable of the host at {point.where}"
        raise _error(splice, message, remedy)


def _check_rebound(splice: Splice, point: Point, bound: set[str]) -> None:
    """What a splice rebinds is a variable of the function that the point is in."""
    host = scopes_of(point.source.module).inner[point.hosts[-1]]
    outer = sorted(name for name in bound & set(point.shown) if name not in host.bound or name in host.outer)
    if outer:
        message = f"rebinds {outer[0]}, which is no variable of {point.hosts[-1].name.value} at {point.where}"
        raise _error(splice, message, "Bind another name, or show a variable of the function.")


def _check_yield(splice: Splice, point: Point, body: Source) -> None:
    """A yield makes its function a generator: the host must be one."""
    host = point.hosts[-1]
    annotation = point.source.code(host.returns.annotation) if host.returns else ""
    generates = re.search("Iterator|Generator|Iterable", annotation)
    if any(isinstance(node, cst.Yield) for node in _outside_functions(body.module)) and not generates:
        if not any(isinstance(node, cst.Yield) for node in own_nodes(host)):
            message = f"yields, which would make a generator of the host at {point.where}"
            raise _error(splice, message, "Annotate the host as `-> Iterator[...]` if it is one.")


def _outside_functions(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    for child in syntax.children(node):
        if not isinstance(child, (cst.FunctionDef, cst.Lambda)):
            yield child
            yield from _outside_functions(child)


def _emitted(node: cst.CSTNode) -> set[str]:
    calls = [call for call in syntax.walk(node) if isinstance(call, cst.Call) and syntax.called(call) == "emit"]
    return {syntax.dotted(argument.value) for call in calls for argument in call.args}


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
