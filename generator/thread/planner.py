"""Decides how threaded values travel: which functions take, pass and return them."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from generator.code.traced import Origin
from generator.errors import LoomError
from generator.language.parts import Provider
from generator.thread.asked import check_calls
from generator.thread.functions import Call
from generator.thread.graph import CallGraph
from generator.thread.plan import Plan
from generator.thread.values import Value, is_own, read_values
from generator.weave.adapt import Need


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
    plan = Plan(graph, values, asked)
    planner = _Planner(plan)
    check_calls(graph, values, asked)
    for need in needs:
        value = values[need.name]
        if need.function not in graph.functions:
            message = f"{need.fragment} reads {need.name!r} in {need.function}, to which no value can be carried"
            raise LoomError(message, str(need.origin), "Put the point into a function or a method of the package.")
        if value.providers or value.given:
            planner.require(need.function, need.name, need)
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
        for value in values.values():
            calls = [call for call in graph.calls_of(caller) if value.carried(call)]
            if len(calls) > 1 and (caller in several or all(plan.is_stacked(call, value.name) for call in calls)):
                value.split[caller] = calls
    return plan


class _Planner:
    """Walks outward from each need."""

    def __init__(self, plan: Plan):
        self.plan, self.graph, self._asked = plan, plan.graph, plan.asked

    def require(self, function: str, name: str, need: Need | None) -> None:
        """Makes `name` known inside `function`, which cannot do without it."""
        node, value = self.graph.functions[function], self.plan.values[name]
        if function in value.required or (function, name) in self._asked:
            return
        if function in value.providers:
            self._provide(function, name, need)
            return
        self.check_own(function, name)
        if function in value.optional:  # it could do without, until now
            value.optional.remove(function)
        elif node.owner:  # a nested function sees what its enclosing function has
            if value.per_layer and any(call.scan for call in self.graph.callers(function)):
                value.scanned.add(function)
            self.require(node.owner, name, need)
            return
        value.required.add(function)
        self.ask_callers(function, name, False, need)

    def ask_callers(self, function: str, name: str, optional: bool, need: Need | None) -> None:
        """Has each call of `function` pass `name`; a call that can do without it passes it where it is at hand."""
        calls = self.graph.callers(function)
        if not calls and not optional and name not in self.graph.functions[function].parameter_names:
            self._refuse_missing(function, name, need)
        for call in calls:
            if call.supplies(self.graph.functions[function], name):
                continue
            if call.scan:
                self._scan(call, name, optional)
                continue
            if optional:
                if not self._is_available(call.caller, name, set()):
                    continue
                self._offer(call.caller, name)
            else:
                self.require(call.caller, name, need)
            self.plan.values[name].passed.add(call)

    def _scan(self, call: Call, name: str, optional: bool) -> None:
        """A scan passes nothing but the carry and a slice: what is scanned must see the value from where it stands."""
        callee = self.graph.functions[call.callee]
        if name not in callee.parameter_names and not optional:
            where = self.graph.functions[call.caller].source.where(call.node)
            remedy = f"Scan a function that is nested in {call.caller}, and call {call.callee} there."
            raise LoomError(f"a scan cannot pass {name} to {call.callee} ({callee.where})", where, remedy)

    def _offer(self, function: str, name: str) -> None:
        """Makes `name` known inside `function`, as a parameter that its callers may leave out."""
        node, value = self.graph.functions[function], self.plan.values[name]
        if function in value.required | value.optional or (function, name) in self._asked:
            return
        if function in value.providers:
            self._provide(function, name, None)
            return
        self.check_own(function, name)
        if node.owner:
            self._offer(node.owner, name)
            return
        value.optional.add(function)
        self.ask_callers(function, name, True, None)

    def _provide(self, function: str, name: str, need: Need | None) -> None:
        value, provider = self.plan.values[name], self.plan.values[name].providers[function]
        if function in value.provided:
            return
        if not is_own(self.graph.functions[function], provider):
            self.check_own(function, name)
        value.provided.add(function)
        for read in provider.reads:
            if read in self.plan.values:
                self.require(function, read, need)
        if provider.optional:
            value.optional.add(function)
            self.ask_callers(function, name, True, need)

    def check_own(self, function: str, name: str) -> None:
        """A variable of the function's own is not the value because it has its name; one of its splices is theirs."""
        node, text = self.graph.functions[function], self.graph.names.texts[self.graph.functions[function].key]
        variable = self.graph.names.local(node, name)
        if text.scopes.inner[node.node] is not variable[0]:
            return
        bound = [other for other in text.bound[variable] if not isinstance(other, cst.Param)]
        mine = [other for other in bound if node.path_of(other) == node.path]
        if name in node.parameter_names or mine:
            what = "variable" if mine else "parameter"
            message = f"{function} must have the value {name}, and has a {what} {name} of its own"
            remedy = (
                f'Give it another name; or if it is that value, write `{name}=threaded()` or @provide("{function}").'
            )
            raise LoomError(message, node.source.where(mine[0]) if mine else node.where, remedy)

    def _is_available(self, function: str, name: str, seen: set[str]) -> bool:
        """Whether `function` or any function further out has the value."""
        if function in seen:
            return False
        seen.add(function)
        value = self.plan.values[name]
        if function in value.required | value.optional | value.providers.keys() or (function, name) in self._asked:
            return True
        return any(self._is_available(outer, name, seen) for outer in self.graph.outward(function))

    def _refuse_missing(self, function: str, name: str, need: Need | None) -> None:
        node = self.graph.functions[function]
        if need and need.function.endswith(".__init__"):
            made = need.function.removesuffix(".__init__")
            message = f"{need.fragment} needs {name!r} where {made} is made, and no kind of layer gives it"
            remedy = f'Write init = {{ {name} = "..." }} in the architecture, under [kinds.KIND] for each kind in its '
            remedy += f"[[layers]]; or provide {name} on the way from {function}."
            raise LoomError(message, str(need.origin), remedy)
        if node.is_dunder or node.node.decorators:
            message = f"{function} must take {name}, and Python or a decorator calls it"
            raise LoomError(message, node.where, "Do this in an ordinary method, which is called by its name.")
        sites = ", ".join(f"{p.site} ({p.origin})" for p in self.plan.values[name].providers.values())
        message = (
            f"{need.fragment if need else function} needs {name!r}, and {function} ({node.where}), which is called"
        )
        remedy = f"It is provided at {sites}. Provide it at {function} too, or on the way to it; where {function} is "
        remedy += "called after all, call it by its name, as `self.attribute`, or by a type: `layer: Block`."
        raise LoomError(f"{message} by nobody, does not have it", str(need.origin) if need else node.where, remedy)


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
    value.returned = out - {*value.receivers}
    unreached = [r for r in value.receivers if not any(c.callee in out for c in plan.graph.calls_of(r))]
    if unreached:
        reader = plan.graph.functions[unreached[0]]
        call = "Call what emits it by its name, as `self.attribute`, or by a type on the way: `layer: Block`."
        remedy = f"Read it in {reader.owner}, and pass it on." if reader.owner else call
        raise LoomError(f"no call here leads to where {value.name!r} is emitted", reader.where, remedy)
