"""Refuses to thread a function that is used in a way that cannot be followed: it would be called wrongly there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from generator.code import syntax
from generator.code.names import own_bound
from generator.errors import LoomError
from generator.thread.functions import Call, Function
from generator.thread.instances import Instances
from generator.thread.plan import Plan
from generator.thread.wrappers import counting

_DERIVATIVES = ("grad", "value_and_grad")
_PLAIN = ("staticmethod", "classmethod")


def check_uses(plan: Plan) -> None:
    """Checks every use of every function that takes or gives more than before.

    Raises:
        LoomError: at the first use that is no call which is followed.
    """
    changed = {function for table in (plan.required, plan.returned) for function, names in table.items() if names}
    for name in sorted(changed):
        function = plan.graph.functions[name]
        if function.twice:
            raise LoomError(f"{name} is defined twice, and only one could be threaded", function.where, "Rename one.")
        _check_decorators(plan, function)
        _check_uses(plan, function)
        plan.graph.check_doubts(name)
    _check_instances(plan, changed)
    for call in plan.graph.calls:
        _check_wrappers(plan, call)


def _check_decorators(plan: Plan, function: Function) -> None:
    """A decorator gives the function back, to be called in the same way."""
    for decorator in function.node.decorators:
        known = syntax.dotted(decorator.decorator) in _PLAIN
        if not known and plan.graph.wrappers.read(decorator.decorator, function) is None:
            word = syntax.dotted(decorator.decorator) or syntax.called(decorator.decorator)
            message = f"{function.id} must take or give {_added(plan, function.id)}, and is decorated with {word}"
            remedy = "Decorate a function around it, or use jax.jit, jax.checkpoint or jax.grad, or a partial of them."
            raise LoomError(f"{message}, which threading cannot follow", function.source.where(decorator), remedy)


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


def _check_instances(plan: Plan, changed: set[str]) -> None:
    """Every use of a method that changes must be a call that is followed, as far as instances of its class may be."""
    graph = plan.graph
    names = {graph.functions[function].node.name.value for function in changed if graph.functions[function].is_method}
    if not names - {"__init__"}:
        return
    instances, doubtful = Instances(graph), {id(doubt.node) for doubt in graph.doubts}

    def check(kinds: set[str], method: str, node: cst.CSTNode, function: Function) -> None:
        for kind in sorted(kinds):
            found = graph.method(kind, method)
            if found in changed:
                message = f"{found} must take or give {_added(plan, found)}, and this may be a {kind} that is used in a"
                remedy = "Call it by a name or an attribute of one type, and say which: `layer: Block`."
                raise LoomError(f"{message} way that threading cannot follow", function.source.where(node), remedy)

    for function in graph.functions.values():
        for node, expression, kinds in instances.calls(function):
            if id(node) not in doubtful:
                check(kinds, "__call__", expression, function)
        for attribute in instances.attributes(function, names):
            if (function.key, attribute) not in graph.followed:
                check(instances.classes(attribute.value, function), attribute.attr.value, attribute, function)


def _check_wrappers(plan: Plan, call: Call) -> None:
    """What wraps a call counts parameters and results."""
    required, returned = plan.required.get(call.callee), plan.returned.get(call.callee)
    if not required and not returned:
        return
    source, callee = plan.graph.functions[call.caller].source, plan.graph.functions[call.callee]
    derived = any(wrapper.word.split(".")[-1] in _DERIVATIVES for wrapper in call.wrappers)
    if returned and derived:
        message = f"{call.callee} also returns {returned[0]}, and is differentiated here"
        remedy = f"Receive {returned[0]} in {call.callee} or further in, and add it to the result."
        raise LoomError(message, source.where(call.node), remedy)
    counted = [wrapper.counts for wrapper in call.wrappers if wrapper.counts] + _counts(callee.node)
    if counted and required and any(parameter.default for parameter in callee.positional):
        message = (
            f"{call.callee} takes {required[0]} before its parameters with defaults, and {counted[0]} counts parameters"
        )
        remedy = "Name them, as in static_argnames, or give the parameters no defaults."
        raise LoomError(message, source.where(call.node), remedy)


def _counts(function: cst.FunctionDef) -> list[str]:
    """The keywords of its decorators that count parameters."""
    calls = [node for d in function.decorators for node in syntax.walk(d) if isinstance(node, cst.Call)]
    return [word for word in map(counting, calls) if word]
