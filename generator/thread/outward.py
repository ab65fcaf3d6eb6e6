"""Edits for values that travel outward: returns, the results of calls and scans, and annotations.

A function returns what is carried beside its result: `return x` becomes `return x, cache`, and `x = f(y)` becomes
`x, cache = f(y)`. Where every return is a tuple and every caller takes it apart, the value is one more element;
otherwise the result stays one element: `return (a, b), cache`.
"""

from __future__ import annotations

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.code.traced import Edit
from generator.errors import LoomError
from generator.language.grammar import own_nodes
from generator.thread.functions import Call, Function
from generator.thread.names import variables_of
from generator.thread.plan import Plan


class Shapes:
    """How many elements the result of each function has that returns more than before; 0 where it is one value."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._lengths: dict[str, int] = {}

    def length(self, function: str) -> int:
        if function not in self._lengths:
            self._lengths[function] = self._read(self.plan.graph.functions[function])
        return self._lengths[function]

    def _read(self, function: Function) -> int:
        lengths = {_length(node.value) for node in own_returns(function)}
        for call in self.plan.graph.callers(function.id):
            lengths.add(_length(_target(call)))
        annotation = function.result
        fits = not annotation or (annotation.startswith("tuple[") and "..." not in annotation)
        return lengths.pop() if len(lengths) == 1 and fits else 0


def _target(call: Call) -> cst.BaseAssignTargetExpression | None:
    """`x` of `x = f(y)`, where the statement is just that."""
    small = syntax.simple(call.statement)
    taken = isinstance(small, cst.Assign) and small.value is call.node and len(small.targets) == 1
    return small.targets[0].target if isinstance(small, cst.Assign) and taken else None


def _length(node: cst.CSTNode | None) -> int:
    if not isinstance(node, cst.Tuple) or any(isinstance(element, cst.StarredElement) for element in node.elements):
        return 0
    return len(node.elements)


def own_returns(function: Function) -> list[cst.Return]:
    return [node for node in own_nodes(function.node) if isinstance(node, cst.Return)]


def is_scanned(plan: Plan, function: str) -> bool:
    return any(call.scan for call in plan.graph.callers(function))


def return_edits(plan: Plan, function: Function, shapes: Shapes) -> list[Edit]:
    """`return x` becomes `return x, name`; in a scanned function the None of `return x, None` gives way."""
    names = plan.returned(function.id)
    if not names:
        return []
    source, edits, given = function.source, [], [plan.result(function.id, name) for name in names]
    scanned, flat = is_scanned(plan, function.id), shapes.length(function.id)
    for node in own_returns(function):
        if node.value is None:
            message = f"{function.id} returns nothing here, beside which {names[0]} could go"
            raise LoomError(message, source.where(node), "Return a value.")
        if scanned:
            if not _ends_in(node.value, "None"):
                message = (
                    f"{function.id} is scanned and must also give {names[0]}, and does not end in `return carry, None`"
                )
                raise LoomError(message, source.where(node), "Write `return x, None`.")
            start, end = source.span(cst.ensure_type(node.value, cst.Tuple).elements[1].value)
            edits.append(plan.insert(start, packed(given), names[0], end))
        elif not passes_through(plan, function, node.value):
            edits += _beside(plan, source, node.value, given, names[0], bool(flat))
    if function.node.returns is not None and not scanned:
        start, end = source.span(function.node.returns.annotation)
        kinds = ", ".join(plan.annotation(function.id, name) for name in names)
        if flat:
            edits.append(plan.insert(end - 1, f", {kinds}", names[0]))
        else:
            edits += [plan.insert(start, "tuple[", names[0]), plan.insert(end, f", {kinds}]", names[0])]
    return edits


def _check_unread(function: Function) -> None:
    """`_` takes what a function has no use for, or gives way: it is no variable that is read."""
    names = variables_of(function.source.module)
    for name in syntax.walk(function.node):
        if isinstance(name, cst.Name) and name.value == "_" and name in names.standing and name not in names.binding:
            message = f"{function.id} reads _, which a threaded result would overwrite"
            raise LoomError(message, function.source.where(name), "Give it a name.")


def _ends_in(node: cst.CSTNode, name: str) -> bool:
    """Whether a node is a pair whose second element is that name."""
    return isinstance(node, cst.Tuple) and _length(node) == 2 and syntax.dotted(node.elements[1].value) == name


def _beside(plan: Plan, source: Source, node: cst.CSTNode, names: list[str], cause: str, flat: bool) -> list[Edit]:
    """Edits that put names beside an expression or a target; `cause` is a value that they are there for."""
    (start, end), more = source.span(node), ", ".join(names)
    if not isinstance(node, cst.Tuple) or bool(node.lpar) != flat:  # x, name / (a, b), name / a, b, name
        return [plan.insert(end, f", {more}", cause)]
    if flat:
        return [plan.insert(end - 1, f", {more}", cause)]
    return [plan.insert(start, "(", cause), plan.insert(end, f"), {more}", cause)]


def passes_through(plan: Plan, function: Function, value: cst.BaseExpression) -> bool:
    """`return f(x)` needs no change where f also returns just what this function does."""
    for call in plan.graph.calls_of(function.id):
        if call.node is value:
            return plan.returned(call.callee) == plan.returned(function.id)
    return False


def packed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def target_edits(plan: Plan, call: Call, shapes: Shapes) -> list[Edit]:
    """`x = f(x)` becomes `x, name = f(x)`; where the name has no use here, `f(x)[0]` does as well."""
    names = plan.result_names(call)
    if not names:
        return []
    caller = plan.graph.functions[call.caller]
    source, value, where = caller.source, plan.returned(call.callee)[0], caller.source.where(call.statement)
    small, unused = syntax.simple(call.statement), set(names) == {"_"}
    if isinstance(small, cst.Return) and small.value is call.node and passes_through(plan, caller, call.node):
        return []
    if unused and (call.scan or (isinstance(small, cst.Expr) and small.value is call.node)):
        return []
    target = _target(call)
    awaited = plan.graph.functions[call.callee].node.asynchronous
    if unused and target is None and not shapes.length(call.callee) and not awaited:
        return [plan.insert(source.span(call.node)[1], "[0]", value)]
    if "_" in names or call.scan:
        _check_unread(caller)
    if target is None:
        message = f"{call.callee} also returns {', '.join(plan.returned(call.callee))}, and its result has no name here"
        raise LoomError(message, where, "Write the call as a statement of its own: `name = call(...)`.")
    if call.scan:
        if not _ends_in(target, "_"):
            message = f"this scan also gives {', '.join(names)}, and its result is not taken as `carry, _ = ...`"
            raise LoomError(message, where, "Write `x, _ = jax.lax.scan(...)`.")
        start, end = source.span(cst.ensure_type(target, cst.Tuple).elements[1].value)
        return [plan.insert(start, packed(names), value, end)]
    if is_scanned(plan, call.callee):
        message = f"{call.callee} must also give {value}, and is called here as well as scanned"
        raise LoomError(message, where, "Nest a function of its own in the scan.")
    return _beside(plan, source, target, names, value, bool(shapes.length(call.callee)))
