"""Decides how threaded values flow: which functions take, pass and return them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from generator.code.traced import Edit, Origin, Traced
from generator.code.tree import dotted_name
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import Call
from generator.thread.graph import CallGraph
from generator.thread.values import Value, check_calls, read_asked, read_values
from generator.weave.adapt import Need


@dataclass
class Plan:
    """What threading adds, function by function and call by call. Names are in order of the values."""

    graph: CallGraph
    values: dict[str, Value]
    asked: list[tuple[str, str]]  # function and parameter that asks for a value

    def required(self, function: str) -> list[str]:
        """The parameters that a function gets."""
        return [name for name, value in self.values.items() if value.takes.get(function) is False]

    def optional(self, function: str) -> list[str]:
        """The parameters with a default that a function gets."""
        return [name for name, value in self.values.items() if value.takes.get(function)]

    def provided(self, function: str) -> list[str]:
        """What providers make in a function."""
        return [name for name, value in self.values.items() if function in value.sites]

    def scanned(self, function: str) -> list[str]:
        """What a scanned function takes apart."""
        return [name for name, value in self.values.items() if function in value.scanned]

    def passed(self, call: Call) -> list[str]:
        """The arguments that a call gets."""
        return [name for name, value in self.values.items() if call in value.passes]

    def returned(self, function: str) -> list[str]:
        """What a function also returns."""
        return [name for name, value in self.values.items() if function in value.returns]

    def insert(self, offset: int, text: str, name: str, end: int | None = None) -> Edit:
        """Puts in text that is there for a value."""
        return Edit(offset, offset if end is None else end, Traced.insert(text, self.values[name].origin))

    def annotation(self, function: str, name: str) -> str:
        """The type that a value has in a function."""
        kind, depth = self.values[name].annotation, self._depth(function, name)
        if not depth:
            return kind
        inner = kind.removesuffix(" | None")
        return "tuple[" * depth + inner + ", ...]" * depth + kind[len(inner) :]

    def _depth(self, function: str, name: str) -> int:
        """How many tuples are around the value of a layer in a function."""
        carrying = [call for call in self.graph.calls_of(function) if self.values[name].is_carried(call)]
        below = max((self._depth(call.callee, name) for call in carrying), default=0)
        return below + (function in self.values[name].split)

    def is_stacked(self, call: Call, name: str) -> bool:
        """Whether what a call gives for a value came through scans over layers."""
        returns = self.values[name].returns
        inner = [c for c in self.graph.calls_of(call.callee) if c.callee in returns]
        return call.callee in returns and (call.scan or any(self.is_stacked(c, name) for c in inner))

    def item(self, call: Call, name: str) -> str:
        """A value as a call takes it: one of a tuple, where each of several calls has its own."""
        calls = self.values[name].split.get(call.caller, [])
        return f"{name}[{calls.index(call)}]" if call in calls and self.values[name].per_layer else name

    def result_names(self, call: Call) -> list[str]:
        """The name that a caller has for each value that the callee also returns, `_` where it has no use for it."""
        names = []
        for name in self.returned(call.callee):
            value = self.values[name]
            used = call.caller in value.returns or call.caller in value.receivers
            names.append(self._result_name(call, name) if used else "_")
        return names

    def result(self, function: str, name: str) -> str:
        """What a function returns for a value."""
        value = self.values[name]
        calls = [call for call in value.split.get(function, []) if call.callee in value.returns]
        names = "".join(f"{self._result_name(call, name)}, " for call in calls)
        return f"({names.removesuffix(' ' if len(calls) == 1 else ', ')})" if calls else name

    def _result_name(self, call: Call, name: str) -> str:
        """What a caller calls a value that a call gives."""
        if call not in self.values[name].split.get(call.caller, []):
            return name
        whose = call.callee.split(".")[-1].removesuffix("_block") if call.scan else dotted_name(call.node.func)
        return f"{whose.split('.')[-1]}_{name}"


def make_plan(
    graph: CallGraph,
    providers: list[Provider],
    needs: list[Need],
    several: Iterable[str] = (),
    given: dict[str, Origin] | None = None,
) -> Plan:
    """Decides who takes, passes and returns what.

    Args:
        several: functions that call several layers, in which a value of each layer becomes a tuple of them.
        given: names that layers of some kind are made or called with.
    """
    values = read_values(graph, providers, needs, given or {})
    plan = Plan(graph, values, read_asked(graph, values))
    planner = _Planner(plan)
    check_calls(graph, plan.asked)
    for need in needs:
        value = values[need.name]
        if need.function not in graph.functions:
            message = f"{need.fragment} reads {need.name!r} in {need.function}, to which no value can be carried"
            raise LoomError(message, str(need.origin), "Put the point into a function or a method of the package.")
        if value.providers or value.given:
            planner.take(need.function, value, False, need)
        elif need.function not in value.receivers:
            value.receivers.append(need.function)
    for function, name in plan.asked:
        planner.ask_callers(function, values[name], False, None)
    for value in values.values():
        _plan_outward(graph, value)
    _check_circles(plan)
    for caller in graph.functions:
        for value in values.values():
            calls = [call for call in graph.calls_of(caller) if value.is_carried(call)]
            if len(calls) > 1 and (caller in several or all(plan.is_stacked(call, value.name) for call in calls)):
                value.split[caller] = calls
    return plan


class _Planner:
    """Walks outward from each need."""

    def __init__(self, plan: Plan):
        self.graph, self._asked = plan.graph, plan.asked
        self._values = plan.values

    def take(self, function: str, value: Value, optional: bool, need: Need | None) -> None:
        """Makes a value known inside a function: by its provider, from the function around it, or as a parameter.

        Args:
            optional: whether the function can do without; its callers may then leave out the parameter.
        """
        node, taken = self.graph.functions[function], value.takes.get(function)
        if (function, value.name) in self._asked or taken is False or (taken and optional):
            return
        if function in value.providers:
            self._provide(function, value, need)
            return
        value.visible.add(function)
        if node.owner and taken is None:  # a nested function sees what its enclosing function has
            if value.per_layer and any(call.scan for call in self.graph.callers(function)):
                value.scanned.add(function)
            self.take(node.owner, value, optional, need)
            return
        value.takes[function] = optional
        self.ask_callers(function, value, optional, need)

    def _provide(self, function: str, value: Value, need: Need | None) -> None:
        provider = value.providers[function]
        if function in value.sites:
            return
        value.sites.add(function)
        for read in provider.reads:
            if read in self._values:
                self.take(function, self._values[read], False, need)
        if provider.optional:
            value.takes[function] = True
            self.ask_callers(function, value, True, need)

    def ask_callers(self, function: str, value: Value, optional: bool, need: Need | None) -> None:
        """Has each call of a function pass a value; a call that can do without it passes it where it is at hand."""
        callee, calls = self.graph.functions[function], self.graph.callers(function)
        if not calls and not optional and value.name not in callee.parameter_names:
            self._refuse_missing(function, value, need)
        for call in calls:
            if call.supplies(callee, value.name):
                continue
            if call.scan:
                if value.name not in callee.parameter_names and not optional:
                    where = self.graph.functions[call.caller].source.where(call.node)
                    remedy = f"Scan a function that is nested in {call.caller}, and call {call.callee} there."
                    raise LoomError(f"a scan cannot pass {value.name} to {call.callee} ({callee.where})", where, remedy)
            elif not optional or self._is_available(call.caller, value):
                self.take(call.caller, value, optional, need)
                value.passes.add(call)

    def _is_available(self, function: str, value: Value) -> bool:
        """Whether a function or any function further out has the value."""
        outer = self.graph.reach([function], inward=False)
        return any(f in value.takes or f in value.providers or (f, value.name) in self._asked for f in outer)

    def _refuse_missing(self, function: str, value: Value, need: Need | None) -> None:
        node, name = self.graph.functions[function], value.name
        if need and need.function.endswith(".__init__"):
            made = need.function.removesuffix(".__init__")
            message = f"{need.fragment} needs {name!r} where {made} is made, and no kind of layer gives it"
            remedy = f'Write init = {{ {name} = "..." }} in the architecture, under [kinds.KIND] for each kind in its '
            remedy += f"[[layers]]; or provide {name} on the way from {function}."
            raise LoomError(message, str(need.origin), remedy)
        if node.is_dunder or node.node.decorator_list:
            message = f"{function} must take {name}, and Python or a decorator calls it"
            raise LoomError(message, node.where, "Do this in an ordinary method, which is called by its name.")
        sites = ", ".join(f"{p.site} ({p.origin})" for p in value.providers.values())
        message = (
            f"{need.fragment if need else function} needs {name!r}, and {function} ({node.where}), which is called"
        )
        remedy = f"It is provided at {sites}. Provide it at {function} too, or on the way to it; where {function} is "
        remedy += "called after all, call it by its name, as `self.attribute`, or by a type: `layer: Block`."
        raise LoomError(f"{message} by nobody, does not have it", str(need.origin) if need else node.where, remedy)


def _plan_outward(graph: CallGraph, value: Value) -> None:
    """Lets every function on the way from an emitter to a receiver return the value."""
    if not value.emitters:
        if value.receivers:
            where = str(value.marked.get("receive", value.origin))
            remedy = f"Select a fragment that says emit({value.name})."
            raise LoomError(f"nobody emits {value.name!r}, which is received here", where, remedy)
        return
    if not value.receivers:
        where = str(value.marked["emit"])
        remedy = f"Select a fragment that reads it, or write receive({value.name}) further out."
        raise LoomError(f"nobody reads {value.name!r}, which is emitted here", where, remedy)
    out = graph.reach(value.emitters, inward=False) & graph.reach(value.receivers, inward=True)
    value.returns = out - {*value.receivers}
    for receiver in value.receivers:
        if not any(call.callee in out for call in graph.calls_of(receiver)):
            reader = graph.functions[receiver]
            call = "Call what emits it by its name, as `self.attribute`, or by a type on the way: `layer: Block`."
            remedy = f"Read it in {reader.owner}, and pass it on." if reader.owner else call
            raise LoomError(f"no call here leads to where {value.name!r} is emitted", reader.where, remedy)


def _check_circles(plan: Plan) -> None:
    """A function that calls itself has no one place for what it carries outward, or for the slice of a layer."""
    for name, value in plan.values.items():
        steps: dict[str, set[str]] = {}
        for call in plan.graph.calls:
            if value.is_carried(call):
                steps.setdefault(call.caller, set()).add(call.callee)
        try:
            TopologicalSorter(steps).prepare()
        except CycleError as error:
            circle = error.args[1]
            message = f"{name} is carried through {' -> '.join(circle)}, which calls itself"
            raise LoomError(message, plan.graph.functions[circle[0]].where, "Write a loop or a scan.") from None
