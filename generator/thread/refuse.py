"""Refuses to thread where the result could be wrong without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations

import libcst as cst

from generator.code import syntax
from generator.code.names import bound_names, inner_parameters, own_bound, variables
from generator.code.traced import Traced, line_starts
from generator.errors import LoomError
from generator.thread.flow import Flow
from generator.thread.functions import Call, Function
from generator.thread.plan import Plan
from generator.thread.uses import check_uses
from generator.thread.values import Value

_LOOPS = (cst.For, cst.While)
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_DERIVATIVES = ("grad", "value_and_grad")


def check_plan(plan: Plan) -> None:
    """Refuses a plan that the edits could not carry out rightly.

    Raises:
        LoomError: with the place, and what to write instead.
    """
    check_uses(plan)
    for value in plan.values.values():
        _check_layers(plan, value)
    for index, names in plan.passed.items():
        _check_capture(plan, plan.graph.calls[index], names)
    for node in plan.graph.functions.values():
        _check_meaning(plan, node)
        _check_overwriting(plan, node)


def _check_layers(plan: Plan, value: Value) -> None:
    """A value with a slice for each layer is of use only where a scan takes it apart."""
    taken = any(value.name in names for names in plan.scanned.values())
    travels = any(value.name in names for table in (plan.required, plan.passed) for names in table.values())
    if value.per_layer and travels and not taken:
        provider = next(iter(value.providers.values()))
        message = f"{value.name} has a slice for each layer, and no scan over layers is on the way from {provider.site}"
        raise LoomError(message, str(provider.origin), "Drop per_layer=True, or scan the layers with jax.lax.scan.")


def _check_capture(plan: Plan, call: Call, names: list[str]) -> None:
    """A lambda or a comprehension around a call must not have the name of what is passed."""
    source = plan.graph.functions[call.caller].source
    for node in syntax.own_expressions(call.statement):
        if isinstance(node, (cst.Lambda, *_COMPREHENSIONS)) and call.node in syntax.walk(node):
            inner = inner_parameters(node) if isinstance(node, cst.Lambda) else bound_names(node)
            for name in sorted(inner & set(names)):
                message = f"{call.callee} must be passed {name} here, where {name} is something else"
                raise LoomError(message, source.where(call.node), "Rename the inner one.")


def _check_meaning(plan: Plan, function: Function) -> None:
    """A name that is added to a function must not have meant a definition or an import there."""
    added = [n for table in (plan.required, plan.optional, plan.provided) for n in table.get(function.id, ())]
    if not added or not set(added) & {node.value for node in variables(function.node)} - own_bound(function.node):
        return
    for name in added:
        if name in plan.needed.get(function.id, ()) or function.id in plan.values[name].receivers:
            continue
        inner = [f.id for f in plan.graph.functions.values() if f.owner and f.id.startswith(f"{function.id}.")]
        if any(name in plan.needed.get(id, ()) for id in inner):
            continue
        for node in variables(function.node):
            if (
                node.value == name
                and name not in own_bound(function.node)
                and name not in inner_parameters(function.node)
            ):
                message = f"{function.id} must take {name}, and uses the name {name} for something else"
                raise LoomError(message, function.source.where(node), "Give one of them another name.")


def _check_overwriting(plan: Plan, function: Function) -> None:
    """What a call carries outward is kept: no second call, no loop and no variable of the host overwrites it."""
    carrying: dict[tuple[str, str], list[Call]] = {}
    for call in plan.graph.calls:
        if call.caller == function.id:
            for value_name, name in zip(plan.returned.get(call.callee, ()), plan.wanted(call), strict=True):
                carrying.setdefault((value_name, name), []).append(call)
    for (value_name, name), calls in carrying.items():
        if name == "_":
            continue
        value, where = plan.values[value_name], function.source.where
        paths = {id(call): _path(function.node, call.statement) for call in calls}
        for first, second in combinations(calls, 2):
            if not _exclusive(paths[id(first)], paths[id(second)]):
                message = f"two calls in {function.id} give {name}, here and at {where(first.node)}: one would be lost"
                remedy = f"Receive {name} in a function around one of the calls, or emit the values under two names."
                raise LoomError(message, where(second.node), remedy)
        for call in calls:
            if any(isinstance(node, _LOOPS) for node, _ in paths[id(call)]):
                message = f"{call.callee} gives {name} in each round of a loop: all but the last would be lost"
                remedy = f"Scan with jax.lax.scan, or write receive({name}) in a function that the loop calls."
                raise LoomError(message, where(call.node), remedy)
        if function.id in value.emitters:
            message = f"{function.id} emits {name}, and {calls[0].callee}, which it calls, gives {name} too"
            remedy = "Emit one of them under another name."
            raise LoomError(message, where(calls[0].node), remedy)
        mine = own_bound(function.node) - (set(function.parameter_names) if value.providers else set())
        if name in mine and function.id not in value.receivers:
            message = f"{calls[0].callee} gives {name} here, and {function.id} has a variable {name} of its own"
            raise LoomError(message, where(calls[0].node), "Rename the variable.")


def _path(function: cst.FunctionDef, statement: syntax.Statement) -> list[tuple[cst.CSTNode, cst.CSTNode]]:
    """The compound statements around a statement, each with the child that holds it."""

    def visit(node: cst.CSTNode) -> list[tuple[cst.CSTNode, cst.CSTNode]] | None:
        for child in syntax.children(node):
            if child is statement:
                return [(node, child)]
            found = visit(child)
            if found is not None:
                return [(node, child), *found]
        return None

    return visit(function) or []


def _exclusive(first: list[tuple[cst.CSTNode, cst.CSTNode]], second: list[tuple[cst.CSTNode, cst.CSTNode]]) -> bool:
    """Whether two statements are in different branches of one `if` or `match`."""
    for (node, one), (other, two) in zip(first, second, strict=False):
        if node is not other:
            return False
        if one is not two:
            return isinstance(node, (cst.If, cst.Match))
    return False


def check_result(plan: Plan, texts: dict[str, Traced]) -> None:
    """Refuses woven functions in which a threaded value may be read before it is there, or not returned.

    Raises:
        LoomError: with the source line of the read.
    """
    for key, text in texts.items():
        tree = ast.parse(text.text)
        starts = line_starts(text.text)
        for function in (f for f in plan.graph.functions.values() if f.key == key):
            returned = plan.returned.get(function.id, [])
            for node in _found(tree, function, plan):
                flow = Flow(node, set(plan.values) & _bound_in(node))
                for name, line in flow.unbound:
                    message = f"{function.id} reads {name} here, and {name} may not have a value yet"
                    remedy = "Bind it on every path before; a loop or a branch without else may be passed by."
                    raise LoomError(message, str(text.origin_at(starts[line - 1])), remedy)
                if returned and not flow.ends:
                    message = f"{function.id} must return {returned[0]}, and may end without a return"
                    raise LoomError(message, function.where, "Return a value at its end.")


def _found(tree: ast.Module, function: Function, plan: Plan) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The nodes of a function in the woven text."""
    names = [function.node.name.value]
    while function.owner:
        function = plan.graph.functions[function.owner]
        names.insert(0, function.node.name.value)
    if function.class_name:
        names.insert(0, function.class_name)
    level: list[ast.AST] = [tree]
    for name in names:
        level = [node for parent in level for node in _below(parent) if node.name == name]
    return [node for node in level if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _below(parent: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes directly in a scope."""
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
        elif not isinstance(child, ast.expr):
            yield from _below(child)


def _bound_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that are local to a function: what it binds itself, and its parameters."""
    found = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                found.add(child.id)
            scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.comprehension)
            if not isinstance(child, scopes):
                visit(child)

    for statement in function.body:
        visit(ast.Module([statement], []))
    return found
