"""The values that are threaded: provided by fragments, emitted by functions, and requested by parameters."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from generator.code.traced import Origin
from generator.code.tree import called_name, statement_expression
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import REQUEST, Call, Function
from generator.thread.graph import CallGraph
from generator.weave.adapt import Need

_LITERAL = re.compile(r'''True|False|-?\d+(\.\d+)?|"\w*"''')


@dataclass
class Value:
    """A threaded value, provided, emitted or both, and its flow. Functions are ids.

    Attributes:
        origin: the line of a fragment that introduces it.
        providers: site -> its provider.
        emitters: functions that emit it.
        receivers: functions that receive it.
        is_layer_argument: whether layers of some kind are made or called with it.
        emitted_type: the annotation in an emitter: `router_loss: Array = ...`.
        readers: functions in which splices read it.
        locals: functions in which splices bind a local of this name, with the file of each.
        marks: `emit` and `receive` -> the first line with this mark.
        takes: function -> whether callers may omit the parameter by which it takes the value.
        sites: the functions in which a provider makes it.
        scanned: nested functions that take it apart over layers.
        passes: the calls that pass it.
        returns: the functions that also return it.
        split: function -> its calls of several layers, each of which has an item of a tuple.
        visible: the functions in which its name means the value on its way inward.
    """

    name: str
    origin: Origin
    providers: dict[str, Provider] = field(default_factory=dict)
    emitters: list[str] = field(default_factory=list)
    receivers: list[str] = field(default_factory=list)
    is_layer_argument: bool = False
    emitted_type: str = ""
    readers: set[str] = field(default_factory=set)
    locals: set[tuple[str, str]] = field(default_factory=set)
    marks: dict[str, Origin] = field(default_factory=dict)
    takes: dict[str, bool] = field(default_factory=dict)
    sites: set[str] = field(default_factory=set)
    scanned: set[str] = field(default_factory=set)
    passes: set[Call] = field(default_factory=set)
    returns: set[str] = field(default_factory=set)
    split: dict[str, list[Call]] = field(default_factory=dict)
    visible: set[str] = field(default_factory=set)

    @property
    def annotation(self) -> str:
        """The type on the way, with `| None` where every optional provider falls back to None."""
        type_name = next((p.annotation for p in self.providers.values() if p.annotation), self.emitted_type or "Array")
        return f"{type_name} | None" if self._fallbacks == {"None"} and "None" not in type_name else type_name

    @property
    def _fallbacks(self) -> set[str]:
        return {p.result for p in self.providers.values() if p.optional}

    def literal(self, site: str) -> str:
        """Returns the fallback of a site if it can be a default: None, or the same literal at all sites; else ''."""
        provider = self.providers.get(site)
        text = provider.result if provider and provider.optional and not provider.body.text else ""
        return text if text == "None" or (_LITERAL.fullmatch(text) and len(self._fallbacks) == 1) else ""

    @property
    def per_layer(self) -> bool:
        return any(provider.per_layer for provider in self.providers.values())

    def is_carried(self, call: Call) -> bool:
        """Returns whether a call takes or returns the value of a layer, or returns an emitted value."""
        is_slice = self.per_layer and (call in self.passes or (call.is_scan and call.callee in self.scanned))
        return is_slice or call.callee in self.returns


def read_values(
    graph: CallGraph, providers: list[Provider], needs: list[Need], layer_arguments: dict[str, Origin]
) -> dict[str, Value]:
    """Returns all threaded values by name.

    Args:
        layer_arguments: names that layers of some kind are made or called with.
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
            message = f"{first.fragment} ({first.origin}) and {provider.fragment} both provide {provider.value} "
            remedy = "Remove one of them, or exclude one fragment from the other."
            raise LoomError(f"{message}at {provider.site}", str(provider.origin), remedy)
        value.providers[provider.site] = provider
    for name, origin in layer_arguments.items():
        values.setdefault(name, Value(name, origin)).is_layer_argument = True
    for function in graph.functions.values():
        for mark in find_marks(function):
            _read_mark(values, graph, function, mark)
    for need in needs:
        if need.is_local:
            if need.name in values:
                values[need.name].locals.add((need.function, need.origin.path))
            continue
        if need.name not in values and need.is_optional:
            continue
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


def find_marks(function: Function, word: str = "") -> list[ast.Call]:
    """Returns the emit and receive statements of a function, or one kind of them, without those of nested functions."""
    if "emit(" not in function.source.text and "receive(" not in function.source.text:
        return []
    words = (word,) if word else ("emit", "receive")
    calls = map(statement_expression, function.statements)
    return [call for call in calls if isinstance(call, ast.Call) and called_name(call) in words]


def _read_mark(values: dict[str, Value], graph: CallGraph, function: Function, mark: ast.Call) -> None:
    word = called_name(mark)
    match mark:
        case ast.Call(args=[ast.Name(name)], keywords=[]):
            pass
        case _:
            remedy = f"Bind a local name, and write {word}(NAME)."
            raise LoomError(f"{word}() takes one local name", function.source.where(mark), remedy)
    origin = function.source.origin(mark)
    value = values.setdefault(name, Value(name, origin))
    value.marks.setdefault(word, origin)
    if word == "receive":
        value.receivers.append(function.id)
        return
    value.emitters.append(function.id)
    annotations = graph.names.annotations(graph.names.local(function, name), function.key)
    value.emitted_type = value.emitted_type or next(iter(annotations), "")


def is_own_parameter(function: Function, provider: Provider) -> bool:
    """Returns whether a provider returns a parameter of its site with the name of the value."""
    name = provider.value
    return not provider.body.text and provider.result == name and name in function.parameter_names


def read_requests(graph: CallGraph, values: dict[str, Value]) -> list[tuple[str, str]]:
    """Returns function and name of each parameter that requests a value: `def attend(q, segment_ids=threaded())`."""
    requests = []
    defaults = {default for function in graph.functions.values() for default in function.defaults.values()}
    for function in graph.functions.values():
        for parameter in filter(function.requests, function.parameters):
            _check_request(function, parameter, values)
            requests.append((function.id, parameter.arg))
    for key, source in graph.sources.items():
        for node in graph.names.texts[key].nodes if f"{REQUEST}(" in source.text else ():
            if called_name(node) == REQUEST and node not in defaults:
                remedy = "Let a function or a method have the parameter."
                raise LoomError(f"{REQUEST}() is the default of a function's parameter", source.where(node), remedy)
    return requests


def _check_request(function: Function, parameter: ast.arg, values: dict[str, Value]) -> None:
    call, name, positional = function.defaults[parameter], parameter.arg, function.node.args.args
    where, value = function.source.where(call), values.get(name)
    if isinstance(call, ast.Call) and (call.args or call.keywords):
        raise LoomError(f"{REQUEST}() takes no arguments", where, f"Write `{name}={REQUEST}()`.")
    if parameter in positional and any(map(function.has_default, positional[: positional.index(parameter)])):
        message = f"{name} has no default, and follows a parameter that has one"
        raise LoomError(message, where, "Move it before that one.")
    if value is None or not (value.providers or value.is_layer_argument):
        message = f"{function.id} requests {name}, which no selected fragment provides"
        remedy = f'Select a fragment that provides it, or write @provide("SITE") def {name}(...).'
        raise LoomError(message, function.where, remedy)


def check_calls(graph: CallGraph, requests: list[tuple[str, str]]) -> None:
    """Refuses calls that omit a parameter without a default, unless it requests a threaded value."""
    for call in graph.calls:
        callee = graph.functions[call.callee]
        for parameter in () if call.is_scan or call.has_stars else (*callee.positional, *callee.node.args.kwonlyargs):
            name = parameter.arg
            if callee.has_default(parameter) or (callee.id, name) in requests or call.supplies(callee, name):
                continue
            where = graph.functions[call.caller].source.where(call.node)
            remedy = f"Pass it, or have it threaded: write `{name}={REQUEST}()` at {callee.where}."
            raise LoomError(f"this call of {callee.id} omits {name}", where, remedy)
