"""Decides how threaded values flow: which functions take, pass and return them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from generator.code.traced import Origin
from generator.code.tree import dotted_name
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.functions import Call
from generator.thread.graph import CallGraph
from generator.thread.values import Value, check_calls, read_requests, read_values
from generator.weave.adapt import Need


@dataclass(frozen=True)
class FunctionPlan:
    """The names of the values that threading adds to a function, in the order of the values.

    Attributes:
        required: new parameters.
        optional: new parameters with a default.
        provided: values that providers make in it.
        scanned: values that it takes apart, as the function of a scan.
        returned: values that it also returns.
    """

    required: list[str]
    optional: list[str]
    provided: list[str]
    scanned: list[str]
    returned: list[str]


@dataclass
class Plan:
    """The changes that threading makes, function by function and call by call.

    Attributes:
        requests: function and parameter that requests a value.
        functions: the plan of each function.
    """

    graph: CallGraph
    values: dict[str, Value]
    requests: list[tuple[str, str]]
    functions: dict[str, FunctionPlan] = field(default_factory=dict)

    def passed(self, call: Call) -> list[str]:
        """Returns the values that a call passes."""
        return [name for name, value in self.values.items() if call in value.passes]

    def cause(self, name: str) -> Origin:
        """Returns the line because of which a value is carried."""
        return self.values[name].origin

    def annotation(self, function: str, name: str) -> str:
        """Returns the type that a value has in a function."""
        type_name, depth = self.values[name].annotation, self._depth(function, name)
        if not depth:
            return type_name
        inner = type_name.removesuffix(" | None")
        return "tuple[" * depth + inner + ", ...]" * depth + type_name[len(inner) :]

    def _depth(self, function: str, name: str) -> int:
        """Returns how many tuples are around the value of a layer in a function."""
        carrying = [call for call in self.graph.calls_of[function] if self.values[name].is_carried(call)]
        below = max((self._depth(call.callee, name) for call in carrying), default=0)
        return below + (function in self.values[name].split)

    def is_stacked(self, call: Call, name: str) -> bool:
        """Returns whether a scan over layers stacked the value that a call returns."""
        returns = self.values[name].returns
        inner = [c for c in self.graph.calls_of[call.callee] if c.callee in returns]
        return call.callee in returns and (call.is_scan or any(self.is_stacked(c, name) for c in inner))

    def argument(self, call: Call, name: str) -> str:
        """Returns a value as a call takes it: an item of a tuple where each of several calls has its own."""
        calls = self.values[name].split.get(call.caller, [])
        return f"{name}[{calls.index(call)}]" if call in calls and self.values[name].per_layer else name

    def result_names(self, call: Call) -> list[str]:
        """Returns the caller's name for each value that the callee also returns, `_` for one that it does not use."""
        names = []
        for name in self.functions[call.callee].returned:
            value = self.values[name]
            is_used = call.caller in value.returns or call.caller in value.receivers
            names.append(self._result_name(call, name) if is_used else "_")
        return names

    def result(self, function: str, name: str) -> str:
        """Returns the expression that a function returns for a value."""
        value = self.values[name]
        calls = [call for call in value.split.get(function, []) if call.callee in value.returns]
        names = "".join(f"{self._result_name(call, name)}, " for call in calls)
        return f"({names.removesuffix(' ' if len(calls) == 1 else ', ')})" if calls else name

    def _result_name(self, call: Call, name: str) -> str:
        if call not in self.values[name].split.get(call.caller, []):
            return name
        prefix = call.callee.removesuffix("_block") if call.is_scan else dotted_name(call.node.func)
        return f"{prefix.split('.')[-1]}_{name}"


def make_plan(
    graph: CallGraph,
    providers: list[Provider],
    needs: list[Need],
    multi_layer: Iterable[str] = (),
    layer_arguments: dict[str, Origin] | None = None,
) -> Plan:
    """Decides who takes, passes and returns what.

    Args:
        multi_layer: functions that call several layers, in which a value of each layer becomes a tuple of them.
        layer_arguments: names that layers of some kind are made or called with.
    """
    values = read_values(graph, providers, needs, layer_arguments or {})
    plan = Plan(graph, values, read_requests(graph, values))
    check_calls(graph, plan.requests)
    for need in (need for need in needs if not need.is_local and need.name in values):
        value = values[need.name]
        if need.function not in graph.functions:
            message = f"{need.fragment} reads {need.name!r} in {need.function}, to which no value can be carried"
            raise LoomError(message, str(need.origin), "Put the point into a function or a method of the package.")
        if value.providers or value.is_layer_argument:
            _InwardPlanner(plan, need, need.function).take(need.function, value, False)
        elif need.function not in value.receivers:
            value.receivers.append(need.function)
    for function, name in plan.requests:
        _InwardPlanner(plan, None, function).ask_callers(function, values[name], False)
    for value in values.values():
        _plan_outward(graph, value)
    _check_recursion(plan)
    for caller in graph.functions:
        for value in values.values():
            calls = [call for call in graph.calls_of[caller] if value.is_carried(call)]
            if len(calls) > 1 and (caller in multi_layer or all(plan.is_stacked(call, value.name) for call in calls)):
                value.split[caller] = calls
    for id in graph.functions:
        plan.functions[id] = FunctionPlan(
            required=[name for name, value in values.items() if value.takes.get(id) is False],
            optional=[name for name, value in values.items() if value.takes.get(id)],
            provided=[name for name, value in values.items() if id in value.sites],
            scanned=[name for name, value in values.items() if id in value.scanned],
            returned=[name for name, value in values.items() if id in value.returns],
        )
    return plan


class _InwardPlanner:
    """Walks outward from a need, or from a parameter that requests a value, to where the value is known."""

    def __init__(self, plan: Plan, need: Need | None, start: str):
        self.graph, self._requests, self._values, self._need = plan.graph, plan.requests, plan.values, need
        self._start = start

    def take(self, function: str, value: Value, optional: bool) -> None:
        """Makes a value known inside a function: by its provider, from the function around it, or as a parameter.

        Args:
            optional: whether the function works without it; then its callers may omit the parameter.
        """
        node, has_default = self.graph.functions[function], value.takes.get(function)
        if (function, value.name) in self._requests or has_default is False or (has_default and optional):
            return
        if function in value.providers:
            self._provide(function, value)
            return
        value.visible.add(function)
        if node.owner and has_default is None:  # a nested function sees the variables of its enclosing function
            if value.per_layer and any(call.is_scan for call in self.graph.callers[function]):
                value.scanned.add(function)
            self.take(node.owner, value, optional)
            return
        value.takes[function] = optional
        self.ask_callers(function, value, optional)

    def _provide(self, function: str, value: Value) -> None:
        provider = value.providers[function]
        if function in value.sites:
            return
        value.sites.add(function)
        for name in provider.reads:
            if name in self._values:
                self.take(function, self._values[name], False)
        if provider.optional:
            value.takes[function] = True
            self.ask_callers(function, value, True)

    def ask_callers(self, function: str, value: Value, optional: bool) -> None:
        """Lets each call of a function pass a value; where it is optional, only the calls whose caller can have it."""
        callee, calls = self.graph.functions[function], self.graph.callers[function]
        if not calls and not optional and value.name not in callee.parameter_names:
            self._refuse_missing(function, value)
        for call in calls:
            if call.supplies(callee, value.name):
                continue
            if call.is_scan:
                if value.name not in callee.parameter_names and not optional:
                    where = self.graph.functions[call.caller].source.where(call.node)
                    remedy = f"Scan a function that is nested in {call.caller}, and call {call.callee} there."
                    raise LoomError(f"a scan cannot pass {value.name} to {call.callee} ({callee.where})", where, remedy)
            elif not optional or self._is_available(call.caller, value):
                self.take(call.caller, value, optional)
                value.passes.add(call)

    def _is_available(self, function: str, value: Value) -> bool:
        """Returns whether a function or any function further out has the value."""
        outer = self.graph.reachable([function], inward=False)
        return any(f in value.takes or f in value.providers or (f, value.name) in self._requests for f in outer)

    def _refuse_missing(self, function: str, value: Value) -> None:
        node, name, need = self.graph.functions[function], value.name, self._need
        if need and need.function.endswith(".__init__"):
            class_name = need.function.removesuffix(".__init__")
            message = f"{need.fragment} needs {name!r} where {class_name} is made, and no kind of layer gives it"
            remedy = f'Write init = {{ {name} = "..." }} in the architecture, under [kinds.KIND] for each kind in its '
            remedy += f"[[layers]]; or provide {name} on the way from {function}."
            raise LoomError(message, str(need.origin), remedy)
        sites = ", ".join(f"{p.site} ({p.origin})" for p in value.providers.values())
        site, besides = self.graph.common_site(self._start), ""
        if site and site not in value.providers:
            besides = (
                f'It is provided at {sites}. Write @provide("{site}", optional=True) def {name}(...) besides: what it '
            )
            besides += f"returns is for those that have no {name}, and the others pass theirs."
        if node.is_dunder or node.node.decorator_list:
            message = f"{function} must take {name}, and Python or a decorator calls it"
            remedy = besides or "Do this in an ordinary method, which is called by its name."
            raise LoomError(message, node.where, remedy)
        message = (
            f"{need.fragment if need else function} needs {name!r}, and {function} ({node.where}), which is called"
        )
        remedy = f"It is provided at {sites}. Provide it at {function} too, or on the way to it; where {function} is "
        remedy += "called after all, call it by its name, as `self.attribute`, or by a type: `layer: Block`."
        where = str(need.origin) if need else node.where
        raise LoomError(f"{message} by nobody, does not have it", where, besides or remedy)


def _plan_outward(graph: CallGraph, value: Value) -> None:
    """Lets every function on the way from an emitter to a receiver return the value."""
    if bool(value.emitters) != bool(value.receivers):
        message, remedy = f"nobody reads {value.name!r}, which is emitted here", "Select a fragment that reads it, or "
        remedy += f"write receive({value.name}) further out."
        if value.receivers:
            message = f"nobody emits {value.name!r}, which is received here"
            remedy = f"Select a fragment with emit({value.name})."
        where = value.marks.get("receive" if value.receivers else "emit", value.origin)
        raise LoomError(message, str(where), remedy)
    out = graph.reachable(value.emitters, inward=False) & graph.reachable(value.receivers, inward=True)
    value.returns = out - {*value.receivers}
    for receiver in value.receivers:
        if not any(call.callee in out for call in graph.calls_of[receiver]):
            reader = graph.functions[receiver]
            remedy = "Call what emits it by its name, as `self.attribute`, or by a type on the way: `layer: Block`."
            remedy = f"Read it in {reader.owner}, and pass it on." if reader.owner else remedy
            raise LoomError(f"no call here leads to where {value.name!r} is emitted", reader.where, remedy)


def _check_recursion(plan: Plan) -> None:
    """Refuses a value that goes outward, or a slice of a layer, through a function that calls itself."""
    for name, value in plan.values.items():
        steps: dict[str, set[str]] = {}
        for call in plan.graph.calls:
            if value.is_carried(call):
                steps.setdefault(call.caller, set()).add(call.callee)
        try:
            TopologicalSorter(steps).prepare()
        except CycleError as error:
            cycle = error.args[1]
            message = f"{name} is carried through {' -> '.join(cycle)}, which calls itself"
            raise LoomError(message, plan.graph.functions[cycle[0]].where, "Write a loop or a scan.") from None
