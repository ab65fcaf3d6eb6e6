"""Refuses plans and woven functions that could be wrong silently."""

from __future__ import annotations

import ast

from generator.code.assignment import DefiniteAssignment
from generator.code.bindings import COMPREHENSIONS, scopes_of
from generator.code.traced import Traced
from generator.code.tree import TracedTree, dotted_name, position, walk
from generator.errors import LoomError
from generator.thread.functions import Call, Function, functions_in
from generator.thread.mentions import check_mentions
from generator.thread.plan import Plan
from generator.thread.values import Value, find_marks, is_own_parameter


def check_plan(plan: Plan) -> None:
    """Refuses a plan that the edits could not carry out correctly."""
    for value in plan.values.values():
        for function in plan.graph.functions.values():
            _check_name(plan, value, function)
    check_mentions(plan)
    for value in plan.values.values():
        _check_layers(plan, value)
        for id in value.emitters:
            _check_emitted(plan, value, plan.graph.functions[id])
    for call in plan.graph.calls:
        _check_capture(plan, call)
    for function in plan.graph.functions.values():
        _check_overwriting(plan, function)


def _check_name(plan: Plan, value: Value, function: Function) -> None:
    """Refuses a function that has a value and uses its name for a variable, a definition or an import."""
    id, name = function.id, value.name
    inward = id in value.visible or (id in value.sites and not is_own_parameter(function, value.providers[id]))
    outward = (id in value.returns and id not in value.emitters) or (id in value.receivers and not value.providers)
    if not (inward or outward or id in value.receivers):
        return
    names, text = plan.graph.names, plan.graph.names.texts[function.key]
    is_read = any(f"{other}.".startswith(f"{id}.") for other in (*value.readers, *value.receivers))
    for occurrence in text.scopes.occurrences:
        if occurrence.name != name or occurrence.node not in function.nodes:
            continue
        node, (scope, _) = occurrence.node, text.variable(occurrence)
        is_own = scope is text.scopes.inner[function.node] and node in text.binding_nodes
        is_other = scope is None and (not is_read or names.is_global(occurrence, function.key))
        is_foreign = function.is_from_host(node) or (id, function.source.origin(node).path) in value.locals
        if is_other or (is_own and is_foreign and (inward or outward)):
            message = f"{id} must have the value {name}, and uses the name for something else here"
            remedy = f'Give that another name; or if it is the value, write `{name}=threaded()` or @provide("{id}").'
            raise LoomError(message, function.source.where(node), remedy)


def _check_layers(plan: Plan, value: Value) -> None:
    """Refuses a value per layer unless one scan takes it apart, and each function has it whole or a slice of it."""
    whole = [site for site, provider in value.providers.items() if provider.per_layer and site in value.sites]
    if value.per_layer and (False in value.takes.values() or value.passes) and not value.scanned:
        provider = next(iter(value.providers.values()))
        message = f"{value.name} has a slice for each layer, and no scan over layers is on the way from {provider.site}"
        raise LoomError(message, str(provider.origin), "Drop per_layer=True, or scan the layers with jax.lax.scan.")
    queue, slices = [(site, False) for site in whole], dict[str, bool]()
    while queue:
        id, is_slice = queue.pop()
        function = plan.graph.functions[id]
        if slices.setdefault(id, is_slice) != is_slice or (not is_slice and id not in whole and id in value.readers):
            message = f"{id} takes {value.name} of all layers here, and of one layer in a scan"
            raise LoomError(message, function.where, "Let it be called in the scan over layers alone.")
        for inner in (inner for inner in plan.graph.functions.values() if inner.owner == id):
            is_scanned = inner.id in value.scanned
            if is_scanned and (is_slice or not all(call.is_scan for call in plan.graph.callers[inner.id])):
                message = f"{inner.id} takes {value.name} apart, in a scan inside a scan or called without one"
                raise LoomError(message, inner.where, "Scan over the layers once, and call the function there alone.")
            queue += [(inner.id, is_slice or is_scanned)] if inner.id not in slices else []
        for call in plan.graph.calls_of[id]:
            if call in value.passes and call not in value.split.get(id, ()) and slices.get(call.callee) != is_slice:
                queue.append((call.callee, is_slice))


def _check_emitted(plan: Plan, value: Value, function: Function) -> None:
    """Refuses a value that is emitted in a loop, or bound again after that."""
    text, source = plan.graph.names.texts[function.key], function.source
    variable = plan.graph.names.local(function, value.name)
    bindings = (o.node for o in text.scopes.occurrences if text.variable(o) == variable)
    last = max((position(node) for node in bindings if node in text.binding_nodes), default=(0, 0))
    for mark in find_marks(function, "emit"):
        is_looped = _is_looped(function, mark)
        if dotted_name(mark.args[0]) == value.name and (is_looped or last > position(mark)):
            message = f"{function.id} emits {value.name} and binds it again{', in a loop' if is_looped else ''}"
            raise LoomError(message, source.where(mark), "Emit it after that, or under another name.")


def _is_looped(function: Function, node: ast.AST) -> bool:
    """Returns whether a loop of the function itself contains a node."""
    loops = (ast.For, ast.AsyncFor, ast.While)
    return any(isinstance(loop, loops) and node in walk(loop) for loop in function.own_nodes)


def _check_capture(plan: Plan, call: Call) -> None:
    """Refuses to pass a value by a name that a lambda or a comprehension around the call binds."""
    caller = plan.graph.functions[call.caller]
    text = plan.graph.names.texts[caller.key]
    for name in plan.passed(call):
        scope = text.lookup(name, text.scope_of(call.node.func))[0]
        if scope and isinstance(scope.node, (ast.Lambda, *COMPREHENSIONS)):
            message = f"{call.callee} must be passed {name} here, where {name} is something else"
            raise LoomError(message, caller.source.where(call.node), "Rename the inner one.")


def _check_overwriting(plan: Plan, function: Function) -> None:
    """Refuses a returned value that a second call, a loop or a variable of the host overwrites."""
    first_calls: dict[str, Call] = {}
    where = function.source.where
    for call in plan.graph.calls_of[function.id]:
        for value, name in zip(plan.functions[call.callee].returned, plan.result_names(call), strict=True):
            if name == "_":
                continue
            message, remedy = "", "Rename the variable."
            is_received = function.id in plan.values[value].receivers
            first = first_calls.setdefault(name, call)
            if first is not call:
                message = (
                    f"two calls in {function.id} return {name}, here and at {where(first.node)}: one would be lost"
                )
                remedy = f"Call once, or receive {name} in a function around one of the calls."
            elif _is_looped(function, call.node):
                message = f"{call.callee} returns {name} in each round of a loop: all but the last would be lost"
                remedy = f"Scan with jax.lax.scan, or write receive({name}) in a function that the loop calls."
            elif function.id in plan.values[value].emitters:
                message = f"{function.id} emits {name}, and {call.callee}, which it calls, returns {name} too"
                remedy = "Emit one of them under another name."
            elif name in scopes_of(function.source.tree).inner[function.node].bound and not is_received:
                message = f"{call.callee} returns {name} here, and {function.id} has a variable {name} of its own"
            if message:
                raise LoomError(message, where(call.node), remedy)


def check_result(plan: Plan, texts: dict[str, Traced]) -> None:
    """Refuses woven functions that may read a threaded value before it is assigned, or not return it."""
    for key, text in texts.items():
        source = TracedTree(text)
        for function in functions_in(key, source):
            flow = DefiniteAssignment(function.node, plan.values)
            for name, line in flow.unbound:
                message = f"{function.id} reads {name} here, and {name} may not have a value yet"
                remedy = "Bind it on every path before: a loop or a branch without else may be skipped."
                raise LoomError(message, str(text.rows(row := source.tree.row(line), row + 1).origin_at(0)), remedy)
            is_new = function.id not in plan.functions  # a provider brings it
            returned = [] if is_new else plan.functions[function.id].returned
            if returned and not flow.ends:
                message = f"{function.id} must return {returned[0]}, and may end without a return"
                raise LoomError(message, plan.graph.functions[function.id].where, "Return a value at its end.")
