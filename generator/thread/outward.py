"""Edits for values that travel outward: returns, the results of calls and scans, and annotations.

A function returns what is carried beside its result: `return x` becomes `return x, cache`, and `x = f(y)` becomes
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
    """`return x` becomes `return x, name`; in a scanned function the None of `return x, None` gives way."""
    names = plan.returned(function.id)
    if not names:
        return []
    source, edits, written = function.source, [], [plan.result(function.id, name) for name in names]
    scanned = _is_scanned(plan, function.id)
    for node in function.own_nodes:
        if not isinstance(node, ast.Return):
            continue
        if node.value is None:
            message = f"{function.id} returns nothing here, beside which {names[0]} could go"
            raise LoomError(message, source.where(node), "Return a value.")
        if scanned:
            last = _second(node.value, "None")
            if last is None:
                message = (
                    f"{function.id} is scanned and must also give {names[0]}, and does not end in `return carry, None`"
                )
                raise LoomError(message, source.where(node), "Write `return x, None`.")
            start, end = source.span(last)
            edits.append(plan.insert(start, _pack(written), names[0], end))
        elif not _passes_through(plan, function, node.value):
            edits += _beside(plan, source, node.value, written, names[0])
    if function.node.returns is not None and not scanned:
        start, end = source.with_parentheses(function.node.returns)
        kinds = ", ".join(plan.annotation(function.id, name) for name in names)
        edits += [plan.insert(start, "tuple[", names[0]), plan.insert(end, f", {kinds}]", names[0])]
    return edits


def target_edits(plan: Plan, call: Call) -> list[Edit]:
    """`x = f(x)` becomes `x, name = f(x)`; where the name has no use here, `f(x)[0]` does as well."""
    names = plan.result_names(call)
    if not names:
        return []
    caller = plan.graph.functions[call.caller]
    source, value, where = caller.source, plan.returned(call.callee)[0], caller.source.where(call.statement)
    unused, target = set(names) == {"_"}, None
    match call.statement:
        case ast.Return(call.node) if _passes_through(plan, caller, call.node):
            return []
        case ast.Expr(call.node) if unused:
            return []
        case ast.Assign([only], call.node):
            target = only
    if unused and call.scan:
        return []
    if unused and target is None and not isinstance(plan.graph.functions[call.callee].node, ast.AsyncFunctionDef):
        return [plan.insert(source.span(call.node)[1], "[0]", value)]
    if "_" in names or call.scan:
        _check_unread(caller)
    if target is None:
        message = f"{call.callee} also returns {', '.join(plan.returned(call.callee))}, and its result has no name here"
        raise LoomError(message, where, "Write the call as a statement of its own: `name = call(...)`.")
    if call.scan:
        last = _second(target, "_")
        if last is None:
            message = f"this scan also gives {', '.join(names)}, and its result is not taken as `carry, _ = ...`"
            raise LoomError(message, where, "Write `x, _ = jax.lax.scan(...)`.")
        start, end = source.span(last)
        return [plan.insert(start, _pack(names), value, end)]
    if _is_scanned(plan, call.callee):
        message = f"{call.callee} must also give {value}, and is called here as well as scanned"
        raise LoomError(message, where, "Nest a function of its own in the scan.")
    return _beside(plan, source, target, names, value)


def _is_scanned(plan: Plan, function: str) -> bool:
    return any(call.scan for call in plan.graph.callers(function))


def _check_unread(function: Function) -> None:
    """`_` takes what a function has no use for, or gives way: it is no variable that is read."""
    for node in function.nodes:
        match node:
            case ast.Name("_", ast.Load()):
                message = f"{function.id} reads _, which a threaded result would overwrite"
                raise LoomError(message, function.source.where(node), "Give it a name.")


def _second(node: ast.expr, name: str) -> ast.expr | None:
    """The second element of a pair, where it is that name."""
    match node:
        case ast.Tuple([_, (ast.Name() | ast.Constant(None)) as second]) if ast.unparse(second) == name:
            return second
    return None


def _beside(plan: Plan, source: TracedTree, node: ast.expr, names: list[str], cause: str) -> list[Edit]:
    """Edits that put names beside an expression or a target; `cause` is a value that they are there for."""
    (start, end), more = source.with_parentheses(node), ", ".join(names)
    if isinstance(node, ast.Tuple) and not _is_closed(source.code(node)):
        return [plan.insert(start, "(", cause), plan.insert(end, f"), {more}", cause)]
    return [plan.insert(end, f", {more}", cause)]


def _is_closed(pair: str) -> bool:
    """Whether a tuple has parentheses around it: `(a, b)`, not `(a), (b)`."""
    if not pair.startswith("("):
        return False
    try:
        ast.parse(f"[{pair[1:-1]}\n]")
    except SyntaxError:
        return False
    return True


def _passes_through(plan: Plan, function: Function, value: ast.expr) -> bool:
    """`return f(x)` needs no change where f also returns just what this function does."""
    calls = [call for call in plan.graph.calls_of(function.id) if call.node is value]
    return any(plan.returned(call.callee) == plan.returned(function.id) for call in calls)


def _pack(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
