"""Edits for values that travel outward: returns, the results of calls and scans, and annotations.

A function returns a value beside its result: `return x` becomes `return x, cache`, and `x = f(y)` becomes
`x, cache = f(y)`. The result stays one element: `return a, b` becomes `return (a, b), cache`.
"""

from __future__ import annotations

import ast

from generator.code.traced import Edit
from generator.code.tree import TracedTree
from generator.errors import LoomError
from generator.thread.functions import Call, Function
from generator.thread.plan import Plan


def return_edits(plan: Plan, function: Function) -> list[Edit]:
    """Returns edits that make `return x` into `return x, name`; in a scanned function they replace the None."""
    names = plan.functions[function.id].returned
    if not names:
        return []
    source, edits, results = function.source, [], [plan.result(function.id, name) for name in names]
    scanned = _is_scanned(plan, function.id)
    for node in function.own_nodes:
        if not isinstance(node, ast.Return):
            continue
        if node.value is None:
            message = f"{function.id} must also return {names[0]}, and returns nothing here"
            raise LoomError(message, source.where(node), "Return a value.")
        if scanned:
            last = _second_element(node.value, "None")
            if last is None:
                message = f"{function.id} is scanned and must also return {names[0]}, "
                remedy = "Write `return x, None`."
                raise LoomError(f"{message}and does not end in `return carry, None`", source.where(node), remedy)
            start, end = source.span(last)
            edits.append(plan.insert(start, _pack(results), names[0], end))
        elif not _passes_through(plan, function, node.value):
            edits += _append(plan, source, node.value, results, names[0])
    if function.node.returns is not None and not scanned:
        start, end = source.with_parentheses(function.node.returns)
        types = ", ".join(plan.annotation(function.id, name) for name in names)
        edits += [plan.insert(start, "tuple[", names[0]), plan.insert(end, f", {types}]", names[0])]
    return edits


def result_edits(plan: Plan, call: Call) -> list[Edit]:
    """Returns edits that make `x = f(x)` into `x, name = f(x)`, or into `f(x)[0]` where the value is not used."""
    names = plan.result_names(call)
    if not names:
        return []
    caller = plan.graph.functions[call.caller]
    source, returned = caller.source, plan.functions[call.callee].returned
    value, where = returned[0], source.where(call.statement)
    is_unused, target = set(names) == {"_"}, None
    match call.statement:
        case ast.Return(call.node) if _passes_through(plan, caller, call.node):
            return []
        case ast.Expr(call.node) if is_unused:
            return []
        case ast.Assign([only], call.node):
            target = only
    if is_unused and call.is_scan:
        return []
    if is_unused and target is None and not isinstance(plan.graph.functions[call.callee].node, ast.AsyncFunctionDef):
        return [plan.insert(source.span(call.node)[1], "[0]", value)]
    if "_" in names or call.is_scan:
        _check_unread(caller)
    if target is None:
        message = f"{call.callee} also returns {', '.join(returned)}, and its result has no name here"
        raise LoomError(message, where, "Write the call as a statement of its own: `name = call(...)`.")
    if call.is_scan:
        last = _second_element(target, "_")
        if last is None:
            message = f"this scan also returns {', '.join(names)}, and its result is not assigned to `carry, _`"
            raise LoomError(message, where, "Write `x, _ = jax.lax.scan(...)`.")
        start, end = source.span(last)
        return [plan.insert(start, _pack(names), value, end)]
    if _is_scanned(plan, call.callee):
        message = f"{call.callee} must also return {value}, and is called here as well as scanned"
        raise LoomError(message, where, "Nest a function of its own in the scan.")
    return _append(plan, source, target, names, value)


def _is_scanned(plan: Plan, function: str) -> bool:
    return any(call.is_scan for call in plan.graph.callers[function])


def _check_unread(function: Function) -> None:
    """Refuses a function that reads `_`, to which unused values are assigned."""
    for node in function.nodes:
        match node:
            case ast.Name("_", ast.Load()):
                message = f"{function.id} reads _, which a threaded result would overwrite"
                raise LoomError(message, function.source.where(node), "Give it a name.")


def _second_element(node: ast.expr, name: str) -> ast.expr | None:
    """Returns the second element of a pair if it is that name, else None."""
    match node:
        case ast.Tuple([_, (ast.Name() | ast.Constant(None)) as second]) if ast.unparse(second) == name:
            return second
    return None


def _append(plan: Plan, source: TracedTree, node: ast.expr, names: list[str], cause: str) -> list[Edit]:
    """Returns edits that put names beside an expression or a target, because of the value `cause`."""
    (start, end), more = source.with_parentheses(node), ", ".join(names)
    if isinstance(node, ast.Tuple) and node.elts and source.with_parentheses(node.elts[0])[0] == start:
        return [plan.insert(start, "(", cause), plan.insert(end, f"), {more}", cause)]
    return [plan.insert(end, f", {more}", cause)]


def _passes_through(plan: Plan, function: Function, value: ast.expr) -> bool:
    """Returns whether `return f(x)` needs no change, as f returns the same values as this function."""
    callees = [call.callee for call in plan.graph.calls_of[function.id] if call.node is value]
    return any(plan.functions[callee].returned == plan.functions[function.id].returned for callee in callees)


def _pack(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
