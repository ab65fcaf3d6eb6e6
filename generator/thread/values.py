"""The values that are threaded: provided by fragments, emitted by functions, and asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from generator.code import syntax
from generator.code.traced import Origin
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import Call, Function
from generator.thread.graph import CallGraph
from generator.weave.adapt import Need

_LITERAL = re.compile(r"True|False|-?\d+(\.\d+)?")


@dataclass
class Value:
    """A threaded value, provided, emitted or both, and how it travels.

    Attributes:
        required, optional: the functions that take it, as a parameter without or with a default.
        provided: the functions in which a provider makes it.
        scanned: nested functions that take it apart over layers.
        passed: the calls that pass it.
        returned: the functions that also return it.
        split: function -> its calls of several layers, each of which has an item of a tuple.
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
    required: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)
    provided: set[str] = field(default_factory=set)
    scanned: set[str] = field(default_factory=set)
    passed: set[Call] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    split: dict[str, list[Call]] = field(default_factory=dict)

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

    def carried(self, call: Call) -> bool:
        """Whether a call takes or gives the value of a layer, or gives what is emitted."""
        slices = self.per_layer and (call in self.passed or (call.scan and call.callee in self.scanned))
        return slices or call.callee in self.returned


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
        new = Value(provider.value, provider.origin, given=provider.value in given)
        value = values.setdefault(provider.value, new)
        if provider.site in value.providers:
            first = value.providers[provider.site]
            raise LoomError(
                f"{first.fragment} ({first.origin}) and {provider.fragment} both provide {provider.value} "
                f"at {provider.site}",
                str(provider.origin),
                "Remove one of them, or exclude one fragment from the other.",
            )
        value.providers[provider.site] = provider
    for name, origin in given.items():
        values.setdefault(name, Value(name, origin, given=True))
    for function in graph.functions.values():
        for word, call in marks_of(function):
            if len(call.args) != 1 or call.args[0].keyword or not isinstance(call.args[0].value, cst.Name):
                remedy = f"Bind a local name, and write {word}(NAME)."
                raise LoomError(f"{word}() takes one local name", function.source.where(call), remedy)
            name = call.args[0].value.value
            origin = function.source.traced.origin_at(function.source.span(call)[0])
            value = values.setdefault(name, Value(name, origin))
            value.marked.setdefault(word, origin)
            if word == "emit":
                stated = graph.names.annotations(graph.names.local(function, name), function.key)
                value.emitted = value.emitted or next(iter(stated), "")
            (value.emitters if word == "emit" else value.receivers).append(function.id)
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


def marks_of(function: Function) -> list[tuple[str, cst.Call]]:
    """The emit and receive statements of a function itself, not of functions nested in it."""
    if "emit(" not in function.source.text and "receive(" not in function.source.text:
        return []
    calls = [syntax.expression(statement) for statement in syntax.statements(function.node)]
    return [(syntax.called(c), c) for c in calls if isinstance(c, cst.Call) and syntax.called(c) in ("emit", "receive")]


def is_own(function: Function, provider: Provider) -> bool:
    """Whether the value is a parameter of the site, under its own name."""
    name = provider.value
    return not provider.body.text and provider.result.text.strip() == name and name in function.parameter_names
