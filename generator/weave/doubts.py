"""Refuses to thread where the result could be wrong without a word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations

import libcst as cst

from generator import syntax
from generator.errors import LoomError
from generator.traced import Traced, line_starts
from generator.weave.flow import Flow
from generator.weave.functions import Call, Function
from generator.weave.names import bound_names, inner_parameters, own_bound, variables
from generator.weave.plan import Plan, wanted
from generator.weave.values import Value

_LOOPS = (cst.For, cst.While)
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_DERIVATIVES = ("grad", "value_and_grad")


def check_plan(plan: Plan) -> None:
    """Refuses a plan that the edits could not carry out rightly.

    Raises:
        LoomError: with the place, and what to write instead.
    """
    changed = set(plan.required) | set(plan.returned) - {""}
    changed = {function for function in changed if plan.required.get(function) or plan.returned.get(function)}
    for function in sorted(changed):
        if plan.graph.functions[function].twice:
            where = plan.graph.functions[function].where
            raise LoomError(f"{function} is defined twice, and only one could be threaded", where, "Rename one.")
        _check_uses(plan, plan.graph.functions[function])
        plan.graph.check_doubts(function)
    for call in plan.graph.calls:
        _check_wrappers(plan, call)
    for value in plan.values.values():
        _check_layers(plan, value)
    for index, names in plan.passed.items():
        _check_capture(plan, plan.graph.calls[index], names)
    for node in plan.graph.functions.values():
        _check_meaning(plan, node)
        _check_overwriting(plan, node)


def _added(plan: Plan, function: str) -> str:
    return (plan.required.get(function) or plan.returned.get(function) or [""])[0]


def _check_uses(plan: Plan, function: Function) -> None:
    """Every use of a function that changes must be a call that is followed."""
    short = function.node.name.value
    name = function.class_name if short == "__init__" and not function.owner else short
    if function.class_name and not function.owner and short != "__init__":
        return  # of a method, only calls with a known type are its uses
    for scope, alias in plan.graph.aliases.get(function.id, ()):
        _check_names(plan, function, plan.graph.functions[scope].node, alias, plan.graph.functions[scope].key)
    for key in [function.key] if function.owner else plan.graph.sources:
        source = plan.graph.sources[key]
        if not re.search(rf"\b{name}\b", source.text):
            continue
        within = plan.graph.functions[function.owner].node if function.owner else source.module
        _check_names(plan, function, within, name, key)


def _check_names(plan: Plan, function: Function, within: cst.CSTNode, name: str, key: str) -> None:
    """The uses of a name in a definition, which `key` names, are calls that are followed."""
    for node in _uses(within, name, top=within):
        if (key, node) not in plan.graph.followed:
            message = f"{function.id} must take or give {_added(plan, function.id)}, and is used here in a way that"
            remedy = f"Call it by its name: {name}(...), in jax.jit, jax.checkpoint, jax.grad or jax.lax.scan at most."
            raise LoomError(f"{message} threading cannot follow", plan.graph.sources[key].where(node), remedy)


def _uses(node: cst.CSTNode, name: str, top: cst.CSTNode) -> Iterator[cst.Name]:
    """The uses of a name as a value: no annotations, no isinstance, not where a function has it for its own."""
    if isinstance(node, cst.FunctionDef) and node is not top and name in own_bound(node):
        return
    if isinstance(node, cst.Call) and syntax.called(node) in ("isinstance", "issubclass"):
        return
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):  # a use of what it has, not of itself
        children = [*node.args, *([] if isinstance(node.func.value, cst.Name) else [node.func])]
    elif isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        children = [child for child in syntax.children(node) if child is not node.name]
        children = [child for child in children if not (isinstance(node, cst.ClassDef) and child in node.bases)]
    else:
        children = list(syntax.children(node))
    for child in children:
        if isinstance(child, cst.Annotation) or (isinstance(node, cst.Attribute) and child is node.attr):
            continue
        if (isinstance(node, cst.Arg) and child is node.keyword) or (
            isinstance(node, cst.Param) and child is node.name
        ):
            continue
        if isinstance(child, cst.Name) and child.value == name and not isinstance(node, cst.AssignTarget):
            yield child
        yield from _uses(child, name, top)


def _check_wrappers(plan: Plan, call: Call) -> None:
    """What wraps a call counts parameters and results."""
    required, returned = plan.required.get(call.callee), plan.returned.get(call.callee)
    if not required and not returned:
        return
    source, callee = plan.graph.functions[call.caller].source, plan.graph.functions[call.callee]
    derived = any(syntax.called(wrapper).split(".")[-1] in _DERIVATIVES for wrapper in call.wrappers)
    if returned and derived:
        message = f"{call.callee} also returns {returned[0]}, and is differentiated here"
        remedy = f"Receive {returned[0]} in {call.callee} or further in, and add it to the result."
        raise LoomError(message, source.where(call.node), remedy)
    counted = [word for wrapper in call.wrappers for word in _counts(wrapper)] + _counts(callee.node)
    if counted and required and any(parameter.default for parameter in callee.positional):
        message = (
            f"{call.callee} takes {required[0]} before its parameters with defaults, and {counted[0]} counts parameters"
        )
        remedy = "Name them, as in static_argnames, or give the parameters no defaults."
        raise LoomError(message, source.where(call.node), remedy)


def _counts(node: cst.Call | cst.FunctionDef) -> list[str]:
    arguments = node.args if isinstance(node, cst.Call) else [a for d in node.decorators for a in _arguments(d)]
    return [
        argument.keyword.value for argument in arguments if argument.keyword and "argnums" in argument.keyword.value
    ]


def _arguments(decorator: cst.Decorator) -> list[cst.Arg]:
    return [node for node in syntax.walk(decorator) if isinstance(node, cst.Arg)]


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
            for value_name, name in zip(plan.returned.get(call.callee, ()), wanted(plan, call), strict=True):
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
