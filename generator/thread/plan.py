"""Decides how threaded values travel: which functions take, pass and return them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import libcst as cst

from generator.code import syntax
from generator.code.traced import Origin
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.asked import check_calls
from generator.thread.calls import CallGraph
from generator.thread.functions import Call
from generator.thread.values import Value, is_own, read_values
from generator.weave.adapt import Need


@dataclass
class Plan:
    """What threading adds, function by function and call by call. Names are in order of the values."""

    graph: CallGraph
    values: dict[str, Value]
    required: dict[str, list[str]] = field(default_factory=dict)  # function -> added parameters
    optional: dict[str, list[str]] = field(default_factory=dict)  # function -> added parameters that default to None
    passed: dict[int, list[str]] = field(default_factory=dict)  # index of a call -> added arguments
    provided: dict[str, list[str]] = field(default_factory=dict)  # function -> values that its providers make
    scanned: dict[str, list[str]] = field(default_factory=dict)  # nested function -> values taken apart over layers
    returned: dict[str, list[str]] = field(default_factory=dict)  # function -> values that it also returns
    needed: dict[str, list[str]] = field(default_factory=dict)  # function -> values that its splices read
    asked: list[tuple[str, str]] = field(default_factory=list)  # function and parameter that asks for a value
    split: dict[tuple[str, str], list[Call]] = field(default_factory=dict)  # function, value of each layer -> the calls

    def depth(self, function: str, name: str) -> int:
        """How many tuples are around the value of a layer in a function."""
        carrying = [c for c in self.graph.calls if c.caller == function and name in self.carried(c)]
        below = max((self.depth(call.callee, name) for call in carrying), default=0)
        return below + ((function, name) in self.split)

    def annotation(self, function: str, name: str) -> str:
        """The type that a value has in a function."""
        kind, depth = self.values[name].annotation, self.depth(function, name)
        if not depth:
            return kind
        inner = kind.removesuffix(" | None")
        return "tuple[" * depth + inner + ", ...]" * depth + kind[len(inner) :]

    def carried(self, call: Call) -> list[str]:
        """The values of layers that a call takes or gives."""
        passed = self.passed.get(self.graph.calls.index(call), [])
        scanned = self.scanned.get(call.callee, []) if call.scan else []
        layered = [name for name in (*passed, *scanned) if self.values[name].per_layer]
        return list(dict.fromkeys([*layered, *self.returned.get(call.callee, ())]))

    def is_stacked(self, call: Call, name: str) -> bool:
        """Whether what a call gives for a value came through scans over layers."""
        inner = (c for c in self.graph.calls if c.caller == call.callee)
        through = call.scan or any(self.is_stacked(c, name) for c in inner)
        return through and name in self.returned.get(call.callee, ())

    def item(self, call: Call, name: str) -> str:
        """A value as a call takes it: one of a tuple, where each of several calls has its own."""
        calls = self.split.get((call.caller, name), [])
        return f"{name}[{calls.index(call)}]" if call in calls and self.values[name].per_layer else name

    def taken(self, call: Call, name: str) -> str:
        """What a caller calls a value that a call gives."""
        if call not in self.split.get((call.caller, name), []):
            return name
        whose = call.callee.split(".")[-1].removesuffix("_block") if call.scan else syntax.dotted(call.node.func)
        return f"{whose.split('.')[-1]}_{name}"

    def wanted(self, call: Call) -> list[str]:
        """The name that a caller has for each value that the callee also returns, `_` where it has no use for it."""
        kept = {
            *self.returned.get(call.caller, ()),
            *(v.name for v in self.values.values() if call.caller in v.receivers),
        }
        return [self.taken(call, name) if name in kept else "_" for name in self.returned.get(call.callee, ())]

    def check_circles(self) -> None:
        """A function that calls itself has no one place for what it carries outward, or for the slice of a layer."""
        steps: dict[str, set[str]] = {}
        for call in self.graph.calls:
            if self.carried(call):
                steps.setdefault(call.caller, set()).add(call.callee)
        try:
            TopologicalSorter(steps).prepare()
        except CycleError as error:
            circle = error.args[1]
            (name, *_) = [n for call in self.graph.calls if call.caller in circle for n in self.carried(call)]
            message = f"{name} is carried through {' -> '.join(circle)}, which calls itself"
            raise LoomError(message, self.graph.functions[circle[0]].where, "Write a loop or a scan.") from None

    def given(self, function: str, name: str) -> str:
        """What a function returns for a value."""
        calls = [c for c in self.split.get((function, name), []) if name in self.returned.get(c.callee, ())]
        names = "".join(f"{self.taken(call, name)}, " for call in calls)
        return f"({names.removesuffix(' ' if len(calls) == 1 else ', ')})" if calls else name


def make_plan(
    graph: CallGraph,
    providers: list[Provider],
    needs: list[Need],
    asked: list[tuple[str, str]],
    several: Iterable[str] = (),
    given: dict[str, Origin] | None = None,
) -> Plan:
    """Decides who takes, passes and returns what.

    Args:
        asked: function and name of each parameter that asks for a threaded value.
        several: functions that call several layers, in which a value of each layer becomes a tuple of them.
        given: names that layers of some kind are made or called with.
    """
    values = read_values(graph, providers, needs, given or {})
    plan = Plan(graph, values, asked=asked)
    planner = _Planner(plan)
    check_calls(graph, values, asked)
    for need in needs:
        value = values[need.name]
        if need.function not in graph.functions:
            message = f"{need.fragment} reads {need.name!r} in {need.function}, to which no value can be carried"
            raise LoomError(message, str(need.origin), "Put the point into a function or a method of the package.")
        _add(plan.needed, need.function, need.name)
        if value.providers or value.given:
            planner.bring(need.function, need.name, need)
        elif need.function not in value.receivers:
            value.receivers.append(need.function)
    for optional in (False, True):  # first those that cannot do without
        for function, name in asked:
            if graph.functions[function].has_default(name) == optional:
                planner.ask_callers(function, name, optional, None)
    for value in values.values():
        _plan_outward(plan, value)
        for receiver in value.receivers if not value.providers else ():
            planner.check_own(receiver, value.name)
    plan.check_circles()
    for caller in graph.functions:
        for name in values:
            calls = [call for call in graph.calls if call.caller == caller and name in plan.carried(call)]
            if len(calls) > 1 and (caller in several or all(plan.is_stacked(call, name) for call in calls)):
                plan.split[caller, name] = calls
    order = list(values)
    for table in (plan.required, plan.optional, plan.passed, plan.provided, plan.scanned, plan.returned):
        for names in table.values():
            names.sort(key=order.index)
    return plan


class _Planner:
    """Walks outward from each need."""

    def __init__(self, plan: Plan):
        self.plan, self.graph, self._asked = plan, plan.graph, plan.asked

    def bring(self, function: str, name: str, need: Need | None) -> None:
        """Makes `name` known inside `function`, which cannot do without it."""
        node, value = self.graph.functions[function], self.plan.values[name]
        if name in self.plan.required.get(function, ()) or (function, name) in self._asked:
            return
        if function in value.providers:
            self._provide(function, name, need)
            return
        self.check_own(function, name)
        if name in self.plan.optional.get(function, ()):  # it could do without, until now
            self.plan.optional[function].remove(name)
        elif node.owner:  # a nested function sees what its enclosing function has
            if value.per_layer and any(call.scan for call in self.graph.callers(function)):
                _add(self.plan.scanned, function, name)
            self.bring(node.owner, name, need)
            return
        _add(self.plan.required, function, name)
        self.ask_callers(function, name, False, need)

    def ask_callers(self, function: str, name: str, optional: bool, need: Need | None) -> None:
        """Has each call of `function` pass `name`; a call that can do without it passes it where it is at hand."""
        calls = self.graph.callers(function)
        if not calls and not optional and name not in self.graph.functions[function].parameter_names:
            self._nobody(function, name, need)
        for call in calls:
            if call.supplies(self.graph.functions[function], name):
                continue
            if call.scan:
                self._scan(call, name, optional)
                continue
            if optional:
                if not self._at_hand(call.caller, name, set()):
                    continue
                self._offer(call.caller, name)
            else:
                self.bring(call.caller, name, need)
            _add(self.plan.passed, self.graph.calls.index(call), name)

    def _scan(self, call: Call, name: str, optional: bool) -> None:
        """A scan passes nothing but the carry and a slice: what is scanned must see the value from where it stands."""
        callee = self.graph.functions[call.callee]
        if name not in callee.parameter_names and not optional:
            message, caller = f"a scan cannot pass {name} to {call.callee} ({callee.where})", call.caller
            remedy = f"Scan a function that is nested in {caller}, and call {call.callee} there."
            raise LoomError(message, self.graph.functions[caller].source.where(call.node), remedy)

    def _offer(self, function: str, name: str) -> None:
        """Makes `name` known inside `function`, as a parameter that its callers may leave out."""
        node, value = self.graph.functions[function], self.plan.values[name]
        if self._takes(function, name) or (function, name) in self._asked:
            return
        if function in value.providers:
            self._provide(function, name, None)
            return
        self.check_own(function, name)
        if node.owner:
            self._offer(node.owner, name)
            return
        _add(self.plan.optional, function, name)
        self.ask_callers(function, name, True, None)

    def _provide(self, function: str, name: str, need: Need | None) -> None:
        provider = self.plan.values[name].providers[function]
        if name in self.plan.provided.get(function, ()):
            return
        if not is_own(self.graph.functions[function], provider):
            self.check_own(function, name)
        _add(self.plan.provided, function, name)
        for read in provider.reads:
            if read in self.plan.values:
                self.bring(function, read, need)
        if provider.optional:
            _add(self.plan.optional, function, name)
            self.ask_callers(function, name, True, need)

    def _takes(self, function: str, name: str) -> bool:
        return name in (*self.plan.required.get(function, ()), *self.plan.optional.get(function, ()))

    def check_own(self, function: str, name: str) -> None:
        """A variable of the function's own is not the value because it has its name; one of its splices is theirs."""
        node = self.graph.functions[function]
        text, variable = self.graph.names.texts[node.key], self.graph.names.local(node, name)
        if text.scopes.inner[node.node] is not variable[0]:
            return
        bound = (other for other in text.bound[variable] if not isinstance(other, cst.Param))
        mine = [other for other in bound if node.path_of(other) == node.path]
        if name in node.parameter_names or mine:
            what = "variable" if mine else "parameter"
            message = f"{function} must have the value {name}, and has a {what} {name} of its own"
            remedy = f'Rename it; or if it is that value, write `{name}=threaded()` or @provide("{function}").'
            raise LoomError(message, node.source.where(mine[0]) if mine else node.where, remedy)

    def _at_hand(self, function: str, name: str, seen: set[str]) -> bool:
        """Whether `function` or any function further out has the value."""
        if function in seen:
            return False
        seen.add(function)
        mine = function in self.plan.values[name].providers or (function, name) in self._asked
        further = self.graph.outward(function)
        return mine or self._takes(function, name) or any(self._at_hand(outer, name, seen) for outer in further)

    def _nobody(self, function: str, name: str, need: Need | None) -> None:
        node = self.graph.functions[function]
        if node.is_dunder or node.node.decorators:
            message = f"{function} must take {name}, and Python or a decorator calls it"
            raise LoomError(message, node.where, "Do this in an ordinary method, which is called by its name.")
        sites = ", ".join(f"{p.site} ({p.origin})" for p in self.plan.values[name].providers.values())
        who = need.fragment if need else function
        message = f"{who} needs {name!r}, and {function} ({node.where}), which is called by nobody, does not have it"
        remedy = f"It is provided at {sites}. Provide it at {function} too, or say by a type who calls it: `x: Block`."
        raise LoomError(message, str(need.origin) if need else node.where, remedy)


def _plan_outward(plan: Plan, value: Value) -> None:
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
    out = plan.graph.reach(set(value.emitters), inward=False) & plan.graph.reach(set(value.receivers), inward=True)
    for function in plan.graph.functions:
        if function in out and function not in value.receivers:
            _add(plan.returned, function, value.name)
    unreached = [r for r in value.receivers if not any(c.callee in out for c in plan.graph.calls if c.caller == r)]
    if unreached:
        reader = plan.graph.functions[unreached[0]]
        remedy = f"Read it in {reader.owner}, and pass it on." if reader.owner else "Check the types on the way."
        raise LoomError(f"no call here leads to where {value.name!r} is emitted", reader.where, remedy)


def _add(table: dict, key: object, name: str) -> None:
    names = table.setdefault(key, [])
    if name not in names:
        names.append(name)
