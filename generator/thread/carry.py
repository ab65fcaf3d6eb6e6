"""Carries out a threading plan: signatures, calls, scans and the statements of providers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import libcst as cst

from generator.code.arguments import Added, add_arguments, add_parameters, packed
from generator.code.bindings import names_in
from generator.code.edits import Edits, Statement
from generator.code.traced import Traced
from generator.code.tree import is_docstring, statement_expression
from generator.errors import LoomError
from generator.thread.functions import Call, Function
from generator.thread.outward import return_also, take_results
from generator.thread.plan import Plan
from generator.thread.provided import inlined, provider_order, provider_statements
from generator.thread.values import find_marks, is_own_parameter


def carry(plan: Plan) -> dict[str, Traced]:
    """Returns the new text of each definition that the plan changes, by key."""
    edits = {key: Edits(source) for key, source in plan.graph.sources.items()}
    for function in plan.graph.functions.values():
        _add_parameters(plan, function, edits[function.key])
        _open(plan, function, edits[function.key])
        return_also(plan, function, edits[function.key])
        _remove_marks(function, edits[function.key])
    for call in plan.graph.calls:
        key = plan.graph.functions[call.caller].key
        _pass_arguments(plan, call, edits[key])
        _scan(plan, call, edits[key])
        take_results(plan, call, edits[key])
    return {key: changes.made() for key, changes in edits.items() if changes}


def _add_parameters(plan: Plan, function: Function, edits: Edits) -> None:
    """Adds required parameters after the required ones, and optional ones at the end."""
    change = plan.functions[function.id]
    for parameter in filter(function.requests, function.defaults):
        edits.change(parameter, _without_default)
    _scan_parameter(plan, function, edits)
    new = [*change.required, *change.optional]
    if not new:
        return
    args = function.node.args
    calls = [call for call in plan.graph.callers[function.id] if call.has_stars or call.supplies(function, new[0])]
    if args.posonlyargs or args.vararg or (args.kwarg and calls):
        message = f"{function.id} must take {new[0]}, and its parameters leave no place for it"
        raise LoomError(message, function.where, "Write out its parameters, without * and /.")
    required = [(_parameter(plan, function, name), plan.cause(name)) for name in change.required]
    optional = [
        (_parameter(plan, function, name, plan.values[name].literal(function.id) or "None"), plan.cause(name))
        for name in change.optional
    ]
    add_parameters(edits, edits.find(function.node), required, optional)


def _without_default(parameter: cst.Param) -> cst.Param:
    return parameter.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)


def _parameter(plan: Plan, function: Function, name: str, default: str = "") -> str:
    """Returns a parameter as the signature has it: annotated where the others are."""
    annotations = [parameter.annotation for parameter in function.parameters if parameter.arg != "self"]
    type_name = plan.annotation(function.id, name) if any(annotations) or function.node.returns else ""
    type_name = f"{type_name} | None" if type_name and default == "None" and "None" not in type_name else type_name
    suffix = f" = {default}" if default and type_name else f"={default}" if default else ""
    return f"{name}: {type_name}{suffix}" if type_name else f"{name}{suffix}"


def _scan_parameter(plan: Plan, function: Function, edits: Edits) -> None:
    """Puts a parameter for all inputs of the scan in place of that for a layer."""
    names = plan.functions[function.id].scanned
    if not names:
        return
    if len(function.parameters) != 2:
        message = f"{function.id} is scanned with {names[0]}, and does not take a carry and a layer"
        raise LoomError(message, function.where, f"Write `def {function.node.name}(x, layer: Block):`.")
    inputs = cst.Name(_name_for_inputs(function))
    edits.change(
        function.parameters[1],
        lambda layer: edits.new(cst.Param(inputs, comma=layer.comma, star=""), plan.cause(names[0])),
    )


def _name_for_inputs(function: Function) -> str:
    """Returns a name for the inputs of a scan that the function does not use."""
    used = names_in(function.node)
    numbered = (f"layer_inputs_{number}" for number in itertools.count(2))
    names = itertools.chain(("inputs", "scanned", "layer_inputs"), numbered)
    return next(name for name in names if name not in used)


def _open(plan: Plan, function: Function, edits: Edits) -> None:
    """Adds statements at the top of a function: unpacked inputs of a scan, and the statements of providers."""
    first = next((statement for statement in function.node.body if not is_docstring(statement)), None)
    if first and (statements := [*_opening_statements(plan, function, edits)]):
        edits.put_above(first, statements)


def _opening_statements(plan: Plan, function: Function, edits: Edits) -> Iterator[Statement]:
    if scanned := plan.functions[function.id].scanned:
        names = ", ".join([function.parameter_names[1], *scanned])
        yield edits.statement(f"{names} = {_name_for_inputs(function)}", plan.cause(scanned[0]))
    for name in provider_order(plan, function):
        provider = plan.values[name].providers[function.id]
        is_default = plan.values[name].literal(function.id)
        if not (is_default or is_own_parameter(function, provider) or inlined(plan, function, name)):
            yield from provider_statements(plan, function, provider, edits)
    for name, value in plan.values.items():
        if function.id in value.split and value.per_layer and "None" in value.annotation:
            yield edits.statement(f"{name} = {name} or (None,) * {len(value.split[function.id])}", plan.cause(name))


def _pass_arguments(plan: Plan, call: Call, edits: Edits) -> None:
    """Adds arguments to a call: by position as long as the new parameter is next, else by keyword."""
    names, node = plan.passed(call), call.node
    if not names:
        return
    caller, callee = plan.graph.functions[call.caller], plan.graph.functions[call.callee]
    change = plan.functions[callee.id]
    _check_arguments(plan, call, names[0], edits)
    required = [name for name in names if name in change.required]
    own = [parameter.arg for parameter in callee.positional]
    first_default = sum(not callee.has_default(parameter) for parameter in callee.positional)
    parameters = [*own[:first_default], *change.required, *own[first_default:], *change.optional]
    positions = {name: position for position, name in enumerate(parameters)}
    written = {name: plan.argument(call, name) for name in names}
    written |= {name: path for name in names if written[name] == name and (path := inlined(plan, caller, name))}
    position, by_keyword = call.positional_count, bool(node.keywords)
    if required and position > first_default:  # before the arguments that fill defaults by position
        cause = plan.cause(required[0])
        add_arguments(edits, node, [(written[name], cause) for name in required], first_default)
        position, names = position + len(required), [name for name in names if name not in required]
    added: list[Added] = []
    for name in sorted(names, key=lambda name: positions.get(name, len(positions))):
        by_keyword = by_keyword or positions.get(name) != position
        added.append((f"{name}={written[name]}" if by_keyword else written[name], plan.cause(name)))
        position += 1
    add_arguments(edits, node, added)


def _check_arguments(plan: Plan, call: Call, name: str, edits: Edits) -> None:
    source, args = plan.graph.functions[call.caller].source, edits.find(call.node).args
    obstacle = "*arguments" if call.positional_count < len(call.node.args) else ""
    if args and isinstance(args[0].value, cst.GeneratorExp) and not args[0].value.lpar:
        obstacle = "a generator"
    if obstacle:
        message = f"{name} must be passed to {call.callee} here, after {obstacle}"
        raise LoomError(message, source.where(call.node), "Write out the arguments of this call.")


def _scan(plan: Plan, call: Call, edits: Edits) -> None:
    """Makes `lax.scan(block, x, layers)` into `lax.scan(block, x, (layers, cache))`."""
    names = plan.functions[call.callee].scanned if call.is_scan else []
    if not names:
        return
    if call.positional_count < 3 or call.has_stars:
        remedy = "Write `jax.lax.scan(block, x, self.layers)`, these three by position."
        where = plan.graph.functions[call.caller].source.where(call.node)
        raise LoomError(f"{names[0]} must go into this scan", where, remedy)
    more, cause = [plan.argument(call, name) for name in names], plan.cause(names[0])
    edits.change(
        edits.find(call.node).args[2],
        lambda argument: argument.with_changes(value=packed(edits, argument.value, more, cause)),
    )


def _remove_marks(function: Function, edits: Edits) -> None:
    """Removes the lines of emit and receive."""
    marks = find_marks(function)
    for statement in function.statements if marks else ():
        if statement_expression(statement) in marks:
            edits.put(statement, [])
