"""Makes the edits of a threading plan: signatures, calls, scans and the statements of providers."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict

from generator.code.bindings import names_in
from generator.code.traced import Edit, Traced
from generator.code.tree import is_docstring, placeholder, statement_expression
from generator.errors import LoomError
from generator.thread.functions import Call, Function
from generator.thread.outward import result_edits, return_edits
from generator.thread.plan import Plan
from generator.thread.provided import inlined, provider_order, provider_statements
from generator.thread.values import find_marks, is_own_parameter


def carry(plan: Plan) -> dict[str, Traced]:
    """Returns the new text of each definition that the plan changes, by key."""
    edits: dict[str, list[Edit]] = defaultdict(list)
    for function in plan.graph.functions.values():
        edits[function.key] += _signature_edits(plan, function)
        edits[function.key] += _opening_edits(plan, function)
        edits[function.key] += return_edits(plan, function)
        edits[function.key] += _mark_edits(function)
    for call in plan.graph.calls:
        key = plan.graph.functions[call.caller].key
        edits[key] += _argument_edits(plan, call)
        edits[key] += _scan_edits(plan, call)
        edits[key] += result_edits(plan, call)
    return {key: plan.graph.sources[key].traced.edited(changes) for key, changes in edits.items() if changes}


def _insert(
    plan: Plan, items: list[tuple[int, int]], place: int, added: list[tuple[str, str]], opening: int
) -> list[Edit]:
    """Inserts texts into a list of parameters or arguments.

    Args:
        items: the offsets of the items of the list.
        place: how many of them come before.
        added: each text and the value that causes it.
        opening: the offset at which the list begins.
    """
    if place:
        return [plan.insert(items[place - 1][1], f", {text}", cause) for text, cause in added]
    if items:
        return [plan.insert(items[0][0], f"{text}, ", cause) for text, cause in added]
    return [plan.insert(opening, ", " * bool(number) + text, cause) for number, (text, cause) in enumerate(added)]


def _signature_edits(plan: Plan, function: Function) -> list[Edit]:
    """Returns edits that add required parameters after the required ones, and optional ones at the end."""
    source, args, change = function.source, function.node.args, plan.functions[function.id]
    edits = [
        Edit(_end_of_parameter(function, parameter), source.with_parentheses(default)[1], Traced())
        for parameter, default in function.defaults.items()
        if function.requests(parameter)
    ]
    edits += _scanned_parameter_edits(plan, function)
    new = [*change.required, *change.optional]
    if not new:
        return edits
    calls = [call for call in plan.graph.callers[function.id] if call.has_stars or call.supplies(function, new[0])]
    if args.posonlyargs or args.vararg or (args.kwarg and calls):
        message = f"{function.id} must take {new[0]}, and its parameters leave no place for it"
        raise LoomError(message, function.where, "Write out its parameters, without * and /.")
    required = [(_parameter(plan, function, name), name) for name in change.required]
    optional = [
        (_parameter(plan, function, name, plan.values[name].literal(function.id) or "None"), name)
        for name in change.optional
    ]
    opening = source.text.index("(", source.tree.span_of_name(function.node, function.node.name)[1]) + 1
    own = [(source.span(parameter)[0], _end_of_parameter(function, parameter)) for parameter in args.args]
    if not own:
        edits += _insert(plan, [], 0, required + optional, opening)
        return edits + ([plan.insert(opening, ", ", new[0])] if function.parameters or args.kwarg else [])
    edits += _insert(plan, own, sum(not function.has_default(parameter) for parameter in args.args), required, opening)
    return edits + _insert(plan, own, len(own), optional, opening)


def _end_of_parameter(function: Function, parameter: ast.arg) -> int:
    """Returns the offset where a parameter ends, without `=threaded()`."""
    if function.has_default(parameter):
        return function.source.with_parentheses(function.defaults[parameter])[1]
    return function.source.span(parameter)[1]


def _parameter(plan: Plan, function: Function, name: str, default: str = "") -> str:
    """Returns a parameter as the signature has it: annotated where the others are."""
    annotations = [parameter.annotation for parameter in function.parameters if parameter.arg != "self"]
    type_name = plan.annotation(function.id, name) if any(annotations) or function.node.returns else ""
    type_name = f"{type_name} | None" if type_name and default == "None" and "None" not in type_name else type_name
    suffix = f" = {default}" if default and type_name else f"={default}" if default else ""
    return f"{name}: {type_name}{suffix}" if type_name else f"{name}{suffix}"


def _scanned_parameter_edits(plan: Plan, function: Function) -> list[Edit]:
    """Returns edits that replace the parameter for a layer by one for all inputs of the scan."""
    names = plan.functions[function.id].scanned
    if not names:
        return []
    if len(function.parameters) != 2:
        message = f"{function.id} is scanned with {names[0]}, and does not take a carry and a layer"
        raise LoomError(message, function.where, f"Write `def {function.node.name}(x, layer: Block):`.")
    layer = function.parameters[1]
    start, end = function.source.span(layer)[0], _end_of_parameter(function, layer)
    return [plan.insert(start, _name_for_inputs(function), names[0], end)]


def _name_for_inputs(function: Function) -> str:
    """Returns a name for the inputs of a scan that the function does not use."""
    used = names_in(function.node)
    numbered = (f"layer_inputs_{number}" for number in itertools.count(2))
    names = itertools.chain(("inputs", "scanned", "layer_inputs"), numbered)
    return next(name for name in names if name not in used)


def _opening_edits(plan: Plan, function: Function) -> list[Edit]:
    """Returns edits at the top of a function: unpacked inputs of a scan, and the statements of providers."""
    source, scanned = function.source, plan.functions[function.id].scanned
    first = next((statement for statement in function.node.body if not is_docstring(statement)), None)
    if first is None:
        return []
    offset, indent = source.lines(first)[0], " " * source.indent(first)
    edits = []
    if scanned:
        names = ", ".join([function.parameter_names[1], *scanned])
        edits.append(plan.insert(offset, f"{indent}{names} = {_name_for_inputs(function)}\n", scanned[0]))
    for name in provider_order(plan, function):
        provider = plan.values[name].providers[function.id]
        is_default = plan.values[name].literal(function.id)
        if not (is_default or is_own_parameter(function, provider) or inlined(plan, function, name)):
            edits.append(Edit(offset, offset, provider_statements(plan, function, provider, indent)))
    for name, value in plan.values.items():
        if function.id in value.split and value.per_layer and "None" in value.annotation:
            text = f"{indent}{name} = {name} or (None,) * {len(value.split[function.id])}\n"
            edits.append(plan.insert(offset, text, name))
    return edits


def _argument_edits(plan: Plan, call: Call) -> list[Edit]:
    """Returns edits that add arguments: by position as long as the new parameter is next, else by keyword."""
    names, node = plan.passed(call), call.node
    if not names:
        return []
    caller, callee = plan.graph.functions[call.caller], plan.graph.functions[call.callee]
    source, change = caller.source, plan.functions[callee.id]
    opening = source.text.index("(", source.with_parentheses(node.func)[1]) + 1
    _check_arguments(plan, call, names[0], opening)
    items = [source.with_parentheses(argument, opening) for argument in node.args]
    items += [source.span(keyword) for keyword in node.keywords]
    required = [name for name in names if name in change.required]
    own = [parameter.arg for parameter in callee.positional]
    first_default = sum(not callee.has_default(parameter) for parameter in callee.positional)
    parameters = [*own[:first_default], *change.required, *own[first_default:], *change.optional]
    positions = {name: position for position, name in enumerate(parameters)}
    written = {name: plan.argument(call, name) for name in names}
    written |= {name: path for name in names if written[name] == name and (path := inlined(plan, caller, name))}
    edits, position, by_keyword = [], call.positional_count, bool(node.keywords)
    if required and position > first_default:  # before the arguments that fill defaults by position
        edits += _insert(plan, items, first_default, [(written[name], required[0]) for name in required], opening)
        position, names = position + len(required), [name for name in names if name not in required]
    added = []
    for name in sorted(names, key=lambda name: positions.get(name, len(positions))):
        by_keyword = by_keyword or positions.get(name) != position
        added.append((f"{name}={written[name]}" if by_keyword else written[name], name))
        position += 1
    return edits + _insert(plan, items, len(items), added, opening)


def _check_arguments(plan: Plan, call: Call, name: str, opening: int) -> None:
    source, args = plan.graph.functions[call.caller].source, call.node.args
    obstacle = "*arguments" if call.positional_count < len(args) else ""
    if args and isinstance(args[0], ast.GeneratorExp) and source.span(args[0])[0] < opening:
        obstacle = "a generator"
    if obstacle:
        message = f"{name} must be passed to {call.callee} here, after {obstacle}"
        raise LoomError(message, source.where(call.node), "Write out the arguments of this call.")


def _scan_edits(plan: Plan, call: Call) -> list[Edit]:
    """Returns edits that make `lax.scan(block, x, layers)` into `lax.scan(block, x, (layers, cache))`."""
    names = plan.functions[call.callee].scanned if call.is_scan else []
    if not names:
        return []
    source = plan.graph.functions[call.caller].source
    if call.positional_count < 3 or call.has_stars:
        remedy = "Write `jax.lax.scan(block, x, self.layers)`, these three by position."
        raise LoomError(f"{names[0]} must go into this scan", source.where(call.node), remedy)
    start, end = source.with_parentheses(call.node.args[2], source.span(call.node.args[1])[1])
    more = ", ".join(plan.argument(call, name) for name in names)
    return [plan.insert(start, "(", names[0]), plan.insert(end, f", {more})", names[0])]


def _mark_edits(function: Function) -> list[Edit]:
    """Returns edits that remove the lines of emit and receive."""
    marks = find_marks(function)
    return [
        Edit(*function.source.without_comments(statement), placeholder(statement, function.source))
        for statement in (function.statements if marks else ())
        if statement_expression(statement) in marks
    ]
