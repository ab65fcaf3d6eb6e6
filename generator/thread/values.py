"""The values that are threaded: provided by fragments, emitted by functions, and asked for by parameters."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from generator.code.traced import Origin
from generator.code.tree import called_name, statement_expression
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import ASKED, Call, Function
from generator.thread.graph import CallGraph
from generator.weave.adapt import Need

_LITERAL = re.compile(r"True|False|-?\d+(\.\d+)?")


@dataclass
class Value:
    """A threaded value, provided, emitted or both, and how it flows.

    Attributes:
        takes: function -> whether callers may leave out the parameter by which it takes the value.
        sites: the functions in which a provider makes it.
        scanned: nested functions that take it apart over layers.
        passes: the calls that pass it.
        returns: the functions that also return it.
        split: function -> its calls of several layers, each of which has an item of a tuple.
        visible: the functions in which its name means the value on its way inward.
    """

    name: str
    origin: Origin  # the fragment line that causes it
    providers: dict[str, Provider] = field(default_factory=dict)  # site -> provider
    emitters: list[str] = field(default_factory=list)  # ids of functions
    receivers: list[str] = field(default_factory=list)
    given: bool = False  # whether layers of some kind are made or called with it
    emitted: str = ""  # the type that an emitter gives it: `router_loss: Array = ...`
    readers: set[str] = field(default_factory=set)  # ids of functions in which splices read it
    marked: dict[str, Origin] = field(default_factory=dict)  # emit, receive -> the first line that says so
    takes: dict[str, bool] = field(default_factory=dict)
    sites: set[str] = field(default_factory=set)
    scanned: set[str] = field(default_factory=set)
    passes: set[Call] = field(default_factory=set)
    returns: set[str] = field(default_factory=set)
    split: dict[str, list[Call]] = field(default_factory=dict)
    visible: set[str] = field(default_factory=set)

    @property
    def annotation(self) -> str:
        """The type on the way; None is one of its values where providers fall back to None, and to nothing else."""
        kind = next((p.annotation for p in self.providers.values() if p.annotation), self.emitted or "Array")
        return f"{kind} | None" if self._fallbacks == {"None"} and "None" not in kind else kind

    @property
    def _fallbacks(self) -> set[str]:
        return {p.result.text.strip() for p in self.providers.values() if p.optional}

    def literal(self, site: str) -> str:
        """What it is at a site whose callers do not have it, where None or a literal of all sites can be a default."""
        provider = self.providers.get(site)
        text = provider.result.text.strip() if provider and provider.optional and not provider.body.text else ""
        return text if text == "None" or (_LITERAL.fullmatch(text) and len(self._fallbacks) == 1) else ""

    @property
    def per_layer(self) -> bool:
        return any(provider.per_layer for provider in self.providers.values())

    def is_carried(self, call: Call) -> bool:
        """Whether a call takes or gives the value of a layer, or gives what is emitted."""
        slices = self.per_layer and (call in self.passes or (call.scan and call.callee in self.scanned))
        return slices or call.callee in self.returns


def read_values(
    graph: CallGraph, providers: list[Provider], needs: list[Need], given: dict[str, Origin]
) -> dict[str, Value]:
    """All threaded values by name.

    Args:
        given: names that layers of some kind are made or called with.
    """
    values: dict[str, Value] = {}
    for provider in providers:
        if provider.site not in graph.functions:
            raise LoomError(
                f"{provider.fragment} provides {provider.value} at {provider.site!r}, which no selected fragment has",
                str(provider.origin),
                "Name a function or `Class.method` of a selected fragment.",
                dependent=provider.fragment,
            )
        value = values.setdefault(provider.value, Value(provider.value, provider.origin))
        if first := value.providers.get(provider.site):
            raise LoomError(
                f"{first.fragment} ({first.origin}) and {provider.fragment} both provide {provider.value} "
                f"at {provider.site}",
                str(provider.origin),
                "Remove one of them, or exclude one fragment from the other.",
            )
        value.providers[provider.site] = provider
    for name, origin in given.items():
        values.setdefault(name, Value(name, origin)).given = True
    for function in graph.functions.values():
        for word, call in marks_of(function):
            _read_mark(values, graph, function, word, call)
    for need in needs:
        if need.name not in values:
            raise LoomError(
                f"{need.fragment} reads {need.name!r}, which the point {need.point!r} ({need.point_where}) does not "
                "show and no selected fragment provides or emits",
                str(need.origin),
                f'Write @provide("SITE") def {need.name}(...) where it is known, or show it in a host of yours.',
                dependent=need.fragment,
            )
        values[need.name].readers.add(need.function)
    for name, value in values.items():
        if name.startswith("__"):
            raise LoomError(f"{name} is private in a class", str(value.origin), "Let it begin with one _.")
    return values


def marks_of(function: Function) -> list[tuple[str, ast.Call]]:
    """The emit and receive statements of a function itself, not of functions nested in it."""
    if "emit(" not in function.source.text and "receive(" not in function.source.text:
        return []
    calls = [statement_expression(statement) for statement in function.statements]
    return [(called_name(c), c) for c in calls if isinstance(c, ast.Call) and called_name(c) in ("emit", "receive")]


def _read_mark(values: dict[str, Value], graph: CallGraph, function: Function, word: str, call: ast.Call) -> None:
    match call:
        case ast.Call(args=[ast.Name(name)], keywords=[]):
            pass
        case _:
            remedy = f"Bind a local name, and write {word}(NAME)."
            raise LoomError(f"{word}() takes one local name", function.source.where(call), remedy)
    origin = function.source.traced.origin_at(function.source.span(call)[0])
    value = values.setdefault(name, Value(name, origin))
    value.marked.setdefault(word, origin)
    if word == "emit":
        stated = graph.names.annotations(graph.names.local(function, name), function.key)
        value.emitted = value.emitted or next(iter(stated), "")
    (value.emitters if word == "emit" else value.receivers).append(function.id)


def is_own(function: Function, provider: Provider) -> bool:
    """Whether the value is a parameter of the site, under its own name."""
    name = provider.value
    return not provider.body.text and provider.result.text.strip() == name and name in function.parameter_names


def read_asked(graph: CallGraph, values: dict[str, Value]) -> list[tuple[str, str]]:
    """Function and name of each parameter that asks for a value: `def attend(q, k, v, segment_ids=threaded())`."""
    asked = []
    defaults = {default for function in graph.functions.values() for default in function.defaults.values()}
    for function in graph.functions.values():
        for parameter in filter(function.asks, function.parameters):
            _check_asked(function, parameter, values)
            asked.append((function.id, parameter.arg))
    for key, source in graph.sources.items():
        for node in graph.names.texts[key].nodes if f"{ASKED}(" in source.text else ():
            if called_name(node) == ASKED and node not in defaults:
                remedy = "Let a function or a method have the parameter."
                raise LoomError(f"{ASKED}() is the default of a function's parameter", source.where(node), remedy)
    return asked


def _check_asked(function: Function, parameter: ast.arg, values: dict[str, Value]) -> None:
    call, name, own = function.defaults[parameter], parameter.arg, function.node.args.args
    where, value = function.source.where(call), values.get(name)
    if isinstance(call, ast.Call) and (call.args or call.keywords):
        raise LoomError(f"{ASKED}() takes nothing", where, f"Write `{name}={ASKED}()`.")
    if parameter in own and any(map(function.has_default, own[: own.index(parameter)])):
        message = f"{name} has no default, and stands after a parameter that has one"
        raise LoomError(message, where, "Move it before that one.")
    if value is None or not (value.providers or value.given):
        message = f"{function.id} asks for {name}, which no selected fragment provides"
        remedy = f'Select a fragment that has it, or write @provide("SITE") def {name}(...).'
        raise LoomError(message, function.where, remedy)


def check_calls(graph: CallGraph, asked: list[tuple[str, str]]) -> None:
    """No call leaves out a parameter that has no default, unless that asks for a value which is threaded."""
    for call in graph.calls:
        callee = graph.functions[call.callee]
        for parameter in () if call.scan or call.starred else (*callee.positional, *callee.node.args.kwonlyargs):
            name = parameter.arg
            if callee.has_default(parameter) or (callee.id, name) in asked or call.supplies(callee, name):
                continue
            where = graph.functions[call.caller].source.where(call.node)
            remedy = f"Pass it, or have it threaded: write `{name}={ASKED}()` at {callee.where}."
            raise LoomError(f"this call of {callee.id} leaves out {name}", where, remedy)
