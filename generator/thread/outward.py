"""Carries values outward: returns, the results of calls and scans, and annotations.

A function returns a value beside its result: `return x` becomes `return x, cache`, and `x = f(y)` becomes
`x, cache = f(y)`. The result stays one element: `return a, b` becomes `return (a, b), cache`.
"""

from __future__ import annotations

import ast

from generator.code.arguments import beside, first_item, tuple_type
from generator.code.edits import Edits
from generator.errors import LoomError
from generator.thread.functions import Call, Function
from generator.thread.plan import Plan


def return_also(plan: Plan, function: Function, edits: Edits) -> None:
    """Makes `return x` into `return x, name`; in a scanned function the names take the place of the None."""
    names = plan.functions[function.id].returned
    if not names:
        return
    source, results, cause = function.source, [plan.result(function.id, name) for name in names], plan.cause(names[0])
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
            edits.replace(last, _pack(results), cause)
        elif not _passes_through(plan, function, node.value):
            (statement,) = edits.find(node).body
            edits.change(statement, lambda s: s.with_changes(value=beside(edits, s.value, results, cause)))
    if function.node.returns is not None and not scanned:
        types = [plan.annotation(function.id, name) for name in names]
        annotation = edits.find(function.node).returns
        edits.change(annotation, lambda a: a.with_changes(annotation=tuple_type(edits, a.annotation, types, cause)))


def take_results(plan: Plan, call: Call, edits: Edits) -> None:
    """Makes `x = f(x)` into `x, name = f(x)`, or into `f(x)[0]` where the value is not used."""
    names = plan.result_names(call)
    if not names:
        return
    caller = plan.graph.functions[call.caller]
    source, returned = caller.source, plan.functions[call.callee].returned
    value, where, cause = returned[0], source.where(call.statement), plan.cause(returned[0])
    is_unused, target = set(names) == {"_"}, None
    match call.statement:
        case ast.Return(call.node) if _passes_through(plan, caller, call.node):
            return
        case ast.Expr(call.node) if is_unused:
            return
        case ast.Assign([only], call.node):
            target = only
    if is_unused and call.is_scan:
        return
    if is_unused and target is None and not isinstance(plan.graph.functions[call.callee].node, ast.AsyncFunctionDef):
        edits.change(call.node, lambda node: first_item(edits, node, cause))
        return
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
        edits.replace(last, _pack(names), cause)
        return
    if _is_scanned(plan, call.callee):
        message = f"{call.callee} must also return {value}, and is called here as well as scanned"
        raise LoomError(message, where, "Nest a function of its own in the scan.")
    (assigned,) = edits.find(call.statement).body[0].targets
    edits.change(assigned, lambda a: a.with_changes(target=beside(edits, a.target, names, cause)))


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


def _passes_through(plan: Plan, function: Function, value: ast.expr) -> bool:
    """Returns whether `return f(x)` needs no change, as f returns the same values as this function."""
    callees = [call.callee for call in plan.graph.calls_of[function.id] if call.node is value]
    return any(plan.functions[callee].returned == plan.functions[function.id].returned for callee in callees)


def _pack(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
