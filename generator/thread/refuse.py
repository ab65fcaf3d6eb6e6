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
from generator.thread.functions import Call, Function
from generator.thread.mentions import check_mentions
from generator.thread.plan import Plan
from generator.thread.values import Value, marks_of

_LOOPS = (cst.For, cst.While)
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


def check_plan(plan: Plan) -> None:
    """Refuses a plan that the edits could not carry out rightly."""
    check_mentions(plan)
    for value in plan.values.values():
        _check_layers(plan, value)
        for function in value.emitters:
            _check_emitted(plan, value, plan.graph.functions[function])
    for call in plan.graph.calls:
        _check_capture(plan, call, plan.passed(call))
    for node in plan.graph.functions.values():
        _check_meaning(plan, node)
        _check_overwriting(plan, node)


def _check_layers(plan: Plan, value: Value) -> None:
    """A value with a slice for each layer is of use only where a scan takes it apart."""
    if value.per_layer and (value.required or value.passed) and not value.scanned:
        provider = next(iter(value.providers.values()))
        message = f"{value.name} has a slice for each layer, and no scan over layers is on the way from {provider.site}"
        raise LoomError(message, str(provider.origin), "Drop per_layer=True, or scan the layers with jax.lax.scan.")

    whole = [site for site, provider in value.providers.items() if provider.per_layer and site in value.provided]
    queue, slices = [(site, False) for site in whole], dict[str, bool]()
    while queue:
        id, slice = queue.pop()
        function = plan.graph.functions[id]
        if slices.setdefault(id, slice) != slice or (not slice and id not in whole and id in value.readers):
            message = f"{id} takes {value.name} of all layers here, and of one layer in a scan"
            raise LoomError(message, function.where, "Let it be called in the scan over layers alone.")
        for inner in plan.graph.functions.values():
            taken = inner.id in value.scanned
            if inner.owner == id and taken and (slice or not all(call.scan for call in plan.graph.callers(inner.id))):
                message = f"{inner.id} takes {value.name} apart, in a scan inside a scan or called without one"
                raise LoomError(message, inner.where, "Scan over the layers once, and call the function there alone.")
            if inner.owner == id and inner.id not in slices:
                queue.append((inner.id, slice or taken))
        for call in plan.graph.calls_of(id):
            if call in value.passed and call not in value.split.get(id, ()):
                queue += [(call.callee, slice)] if slices.get(call.callee) != slice else []


def _check_emitted(plan: Plan, value: Value, function: Function) -> None:
    """What is emitted keeps its value until the function returns it."""
    names, source = plan.graph.names.texts[function.key], function.source
    variable = plan.graph.names.local(function, value.name)
    binding = {name for name in names.binding if names.of(name) == variable}
    statements = syntax.statements(function.node)
    marks: dict[cst.CSTNode | None, cst.CSTNode]
    marks = {call: call.args[0].value for word, call in marks_of(function) if word == "emit"}
    for mark in (s for s in statements if syntax.dotted(marks.get(syntax.expression(s), s)) == value.name):
        path, after = _path(function.node, mark), source.span(mark)[0]
        looped = any(isinstance(node, _LOOPS) for node, _ in path)
        for name in sorted(binding, key=lambda name: source.span(name)[0]):
            of = [s for s in statements if name in syntax.own_expressions(s)]
            later = [s for s in of if not _exclusive(path, _path(function.node, s))]
            if looped or (source.span(name)[0] > after and later):
                message = f"{function.id} emits {value.name} and binds it again{', in a loop' if looped else ''}"
                raise LoomError(message, source.where(mark), "Emit it after that, or under another name.")


def _check_capture(plan: Plan, call: Call, names: list[str]) -> None:
    """A lambda or a comprehension around a call must not have the name of what is passed."""
    caller = plan.graph.functions[call.caller]
    text = plan.graph.names.texts[caller.key]
    for name in names:
        scope = text.seen(name, text.around(call.node.func))[0]
        if scope and isinstance(scope.node, (cst.Lambda, *_COMPREHENSIONS)):
            message = f"{call.callee} must be passed {name} here, where {name} is something else"
            raise LoomError(message, caller.source.where(call.node), "Rename the inner one.")


def _check_meaning(plan: Plan, function: Function) -> None:
    """A name that is added to a function must not have meant a definition or an import there."""
    received = [value.name for value in plan.values.values() if function.id in value.receivers]
    names, added = plan.graph.names.texts[function.key], [*received, *plan.added(function.id)]
    within = [node for node in syntax.walk(function.node) if isinstance(node, cst.Name)] if added else []
    for name in added:
        value = plan.values[name]
        read = any(f"{id}.".startswith(f"{function.id}.") for id in (*value.readers, *value.receivers))
        for node in within:
            if node.value != name or node not in names.standing or names.of(node)[0]:
                continue
            if plan.graph.names.known(node, function.key) or not read:
                message = f"{function.id} must take {name}, and uses the name {name} for something else"
                raise LoomError(message, function.source.where(node), "Give one of them another name.")


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
        paths = {id(call): _path(function.node, call.statement) for call in calls}
        for first, second in itertools.combinations(calls, 2):
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
        mine = scopes_of(function.source.module).inner[function.node].bound
        mine = mine - set(function.parameter_names) if value.providers else mine
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
    """Refuses woven functions in which a threaded value may be read before it is there, or not returned."""
    for key, text in texts.items():
        starts, prefix = line_starts(text.text), key.rsplit(":", 1)[0] + ":" if ":" in key else ""
        for id, node in _functions(parse_ast(text.text), prefix):
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
