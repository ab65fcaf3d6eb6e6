"""Refuses to thread where the result could be wrong without a word."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

import libcst as cst

from generator.code import syntax
from generator.code.flow import Flow
from generator.code.scopes import scopes_of
from generator.code.traced import Traced, line_starts
from generator.code.tree import parse_ast
from generator.errors import LoomError
from generator.thread.functions import Call, Function, prefix_of
from generator.thread.mentions import check_mentions
from generator.thread.plan import Plan
from generator.thread.values import Value, is_own, marks_of

_LOOPS = (cst.For, cst.While)
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


def check_plan(plan: Plan) -> None:
    """Refuses a plan that the edits could not carry out rightly."""
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
    """Where a function has a value, its host has no other use for the name: no variable, no definition, no import."""
    id, name = function.id, value.name
    made = id in value.sites and not is_own(function, value.providers[id])
    if not (made or id in value.visible or (id in value.returns and id not in value.emitters)):
        return
    for node in syntax.below(function.node, cst.Name):
        node = cst.ensure_type(node, cst.Name)
        if node.value != name or not plan.graph.names.is_variable(node, function.key):
            continue
        if function.is_by_host(node) or plan.graph.names.is_known(node, function.key):
            message = f"{id} must have the value {name}, and uses the name for something else here"
            remedy = f'Give that another name; or if it is the value, write `{name}=threaded()` or @provide("{id}").'
            raise LoomError(message, function.source.where(node), remedy)


def _check_layers(plan: Plan, value: Value) -> None:
    """A value with a slice for each layer is taken apart by one scan on its way, and whole or a slice in a function."""
    whole = [site for site, provider in value.providers.items() if provider.per_layer and site in value.sites]
    if value.per_layer and (value.takes or value.passes) and not value.scanned:
        provider = next(iter(value.providers.values()))
        message = f"{value.name} has a slice for each layer, and no scan over layers is on the way from {provider.site}"
        raise LoomError(message, str(provider.origin), "Drop per_layer=True, or scan the layers with jax.lax.scan.")
    queue, slices = [(site, False) for site in whole], dict[str, bool]()
    while queue:
        id, slice = queue.pop()
        function = plan.graph.functions[id]
        if slices.setdefault(id, slice) != slice or (not slice and id not in whole and id in value.readers):
            message = f"{id} takes {value.name} of all layers here, and of one layer in a scan"
            raise LoomError(message, function.where, "Let it be called in the scan over layers alone.")
        for inner in (inner for inner in plan.graph.functions.values() if inner.owner == id):
            taken = inner.id in value.scanned
            if taken and (slice or not all(call.scan for call in plan.graph.callers(inner.id))):
                message = f"{inner.id} takes {value.name} apart, in a scan inside a scan or called without one"
                raise LoomError(message, inner.where, "Scan over the layers once, and call the function there alone.")
            queue += [(inner.id, slice or taken)] if inner.id not in slices else []
        for call in plan.graph.calls_of(id):
            if call in value.passes and call not in value.split.get(id, ()) and slices.get(call.callee) != slice:
                queue.append((call.callee, slice))


def _check_emitted(plan: Plan, value: Value, function: Function) -> None:
    """What is emitted keeps its value until the function returns it."""
    text, source = plan.graph.names.texts[function.key], function.source
    variable, statements = plan.graph.names.local(function, value.name), syntax.statements(function.node)
    marks = {
        call for word, call in marks_of(function) if word == "emit" and syntax.dotted(call.args[0].value) == value.name
    }
    for mark in (statement for statement in statements if syntax.expression(statement) in marks):
        path = _path(function.node, mark)
        looped = any(isinstance(node, _LOOPS) for node in path)
        for statement in statements:
            names = [
                n
                for n in syntax.own_expressions(statement)
                if isinstance(n, cst.Name) and n in text.binding and text.of(n) == variable
            ]
            later = any(source.span(name)[0] > source.span(mark)[0] for name in names)
            if names and (looped or (later and not _are_exclusive(path, _path(function.node, statement)))):
                message = f"{function.id} emits {value.name} and binds it again{', in a loop' if looped else ''}"
                raise LoomError(message, source.where(mark), "Emit it after that, or under another name.")


def _check_capture(plan: Plan, call: Call) -> None:
    """A lambda or a comprehension around a call must not have the name of what is passed."""
    caller = plan.graph.functions[call.caller]
    text = plan.graph.names.texts[caller.key]
    for name in plan.passed(call):
        scope = text.seen(name, text.around(call.node.func))[0]
        if scope and isinstance(scope.node, (cst.Lambda, *_COMPREHENSIONS)):
            message = f"{call.callee} must be passed {name} here, where {name} is something else"
            raise LoomError(message, caller.source.where(call.node), "Rename the inner one.")


def _check_overwriting(plan: Plan, function: Function) -> None:
    """What a call carries outward is kept: no second call, no loop and no variable of the host overwrites it."""
    carrying: dict[tuple[str, str], list[Call]] = {}
    for call in plan.graph.calls_of(function.id):
        for value_name, name in zip(plan.returned(call.callee), plan.result_names(call), strict=True):
            carrying.setdefault((value_name, name), []).append(call)
    for (value_name, name), calls in carrying.items():
        if name == "_":
            continue
        value, where = plan.values[value_name], function.source.where
        paths = [_path(function.node, call.statement) for call in calls]
        for (first, one), (second, other) in itertools.combinations(zip(calls, paths, strict=True), 2):
            if not _are_exclusive(one, other):
                message = f"two calls in {function.id} give {name}, here and at {where(first.node)}: one would be lost"
                remedy = f"Receive {name} in a function around one of the calls, or emit the values under two names."
                raise LoomError(message, where(second.node), remedy)
        for call, path in zip(calls, paths, strict=True):
            if any(isinstance(node, _LOOPS) for node in path):
                message = f"{call.callee} gives {name} in each round of a loop: all but the last would be lost"
                remedy = f"Scan with jax.lax.scan, or write receive({name}) in a function that the loop calls."
                raise LoomError(message, where(call.node), remedy)
        if function.id in value.emitters:
            message = f"{function.id} emits {name}, and {calls[0].callee}, which it calls, gives {name} too"
            raise LoomError(message, where(calls[0].node), "Emit one of them under another name.")
        bound = scopes_of(function.source.module).inner[function.node].bound
        if name in bound and function.id not in value.receivers:
            message = f"{calls[0].callee} gives {name} here, and {function.id} has a variable {name} of its own"
            raise LoomError(message, where(calls[0].node), "Rename the variable.")


def _path(node: cst.CSTNode, statement: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes on the way down to a statement."""
    for child in syntax.children(node):
        if child is statement:
            return [node, child]
        if found := _path(child, statement):
            return [node, *found]
    return []


def _are_exclusive(first: list[cst.CSTNode], second: list[cst.CSTNode]) -> bool:
    """Whether two statements, by the ways to them, are in different branches of one `if` or `match`."""
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], zip(first, second, strict=False)))
    return common < min(len(first), len(second)) and isinstance(first[common - 1], (cst.If, cst.Match))


def check_result(plan: Plan, texts: dict[str, Traced]) -> None:
    """Refuses woven functions in which a threaded value may be read before it is there, or not returned."""
    for key, text in texts.items():
        starts = line_starts(text.text)
        for id, node in _functions(parse_ast(text.text), prefix_of(key)):
            flow = Flow(node, plan.values)
            for name, line in flow.unbound:
                message = f"{id} reads {name} here, and {name} may not have a value yet"
                remedy = "Bind it on every path before; a loop or a branch without else may be passed by."
                raise LoomError(message, str(text.origin_at(starts[line - 1])), remedy)
            if plan.returned(id) and not flow.ends:
                message = f"{id} must return {plan.returned(id)[0]}, and may end without a return"
                raise LoomError(message, plan.graph.functions[id].where, "Return a value at its end.")


def _functions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a text by id: not those of classes in functions."""
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef) and isinstance(parent, ast.Module):
            yield from _functions(child, f"{child.name}.")
        elif not isinstance(child, (ast.expr, ast.ClassDef)):
            yield from _functions(child, prefix)
