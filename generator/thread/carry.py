"""Makes the edits that a threading plan asks for: signatures, calls, scans and what providers make."""

from __future__ import annotations

import ast
import itertools

from generator.code.bindings import names_in
from generator.code.traced import Edit, Traced
from generator.code.tree import is_docstring, placeholder, statement_expression
from generator.errors import LoomError
from generator.thread.functions import Call, Function
from generator.thread.outward import return_edits, target_edits
from generator.thread.plan import Plan
from generator.thread.provided import inlined, made, provider_order
from generator.thread.values import is_own, marks_of


def carry(plan: Plan) -> dict[str, Traced]:
    """The new text of each definition that the plan changes, by key."""
    edits: dict[str, list[Edit]] = {}
    for function in plan.graph.functions.values():
        changes = edits.setdefault(function.key, [])
        changes += _signature(plan, function)
        changes += _opening(plan, function)
        changes += return_edits(plan, function)
        changes += _marks(function)
    for call in plan.graph.calls:
        changes = edits.setdefault(plan.graph.functions[call.caller].key, [])
        changes += _arguments(plan, call)
        changes += _scan_inputs(plan, call)
        changes += target_edits(plan, call)
    return {key: plan.graph.sources[key].traced.edited(changes) for key, changes in edits.items() if changes}


def _insert(
    plan: Plan, items: list[tuple[int, int]], place: int, added: list[tuple[str, str]], opening: int
) -> list[Edit]:
    """Puts texts into a list of parameters or arguments.

    Args:
        items: the offsets of those that the list has.
        place: how many of them come before.
        added: each text and the value that it is there for.
        opening: the offset at which the list begins.
    """
    if place:
        return [plan.insert(items[place - 1][1], f", {text}", cause) for text, cause in added]
    if items:
        return [plan.insert(items[0][0], f"{text}, ", cause) for text, cause in added]
    return [
        plan.insert(opening, f"{', ' if number else ''}{text}", cause) for number, (text, cause) in enumerate(added)
    ]


def _signature(plan: Plan, function: Function) -> list[Edit]:
    """Required parameters after the required ones, optional parameters last; marks go."""
    source, args = function.source, function.node.args
    edits = [
        Edit(_parameter_end(function, parameter), source.with_parentheses(default)[1], Traced())
        for parameter, default in function.defaults.items()
        if function.asks(parameter)
    ]
    required, optional = plan.required(function.id), plan.optional(function.id)
    if not required and not optional:
        return edits + _scanned_parameter(plan, function)
    _check_signature(plan, function, [*required, *optional][0])
    first = [(_written(plan, function, name), required[0]) for name in required]
    last = [
        (_written(plan, function, name, plan.values[name].literal(function.id) or "None"), optional[0])
        for name in optional
    ]
    opening = source.text.index("(", source.tree.span_of_name(function.node, function.node.name)[1]) + 1
    own = [(source.span(parameter)[0], _parameter_end(function, parameter)) for parameter in args.args]
    if not own:
        more = function.parameters or args.kwarg
        edits += _insert(plan, [], 0, first + last, opening)
        edits += [plan.insert(opening, ", ", (required or optional)[0])] if more else []
        return edits
    edits += _insert(plan, own, sum(not function.has_default(parameter) for parameter in args.args), first, opening)
    edits += _insert(plan, own, len(own), last, opening)
    return edits + _scanned_parameter(plan, function)


def _parameter_end(function: Function, parameter: ast.arg) -> int:
    """The offset where a parameter ends, without `=threaded()`."""
    if function.has_default(parameter):
        return function.source.with_parentheses(function.defaults[parameter])[1]
    return function.source.span(parameter)[1]


def _written(plan: Plan, function: Function, name: str, default: str = "") -> str:
    """A parameter as the signature has it: annotated where its own are."""
    own = [parameter.annotation for parameter in function.parameters if parameter.arg != "self"]
    kind = plan.annotation(function.id, name) if any(own) or function.node.returns else ""
    kind = f"{kind} | None" if kind and default == "None" and "None" not in kind else kind
    given = f" = {default}" if default and kind else f"={default}" if default else ""
    return f"{name}: {kind}{given}" if kind else f"{name}{given}"


def _check_signature(plan: Plan, function: Function, name: str) -> None:
    """New parameters have no place beside `*args` and `/`, nor beside `**kwargs` that calls give their name to."""
    args = function.node.args
    starred = [c for c in plan.graph.callers(function.id) if c.starred or c.supplies(function, name)]
    if args.posonlyargs or args.vararg or (args.kwarg and starred):
        message = f"{function.id} must take {name}, and its parameters leave no place for it"
        raise LoomError(message, function.where, "Write out its parameters, without * and /.")


def _scanned_parameter(plan: Plan, function: Function) -> list[Edit]:
    """The parameter of a scanned function that stands for a layer becomes the inputs of the scan."""
    names = plan.scanned(function.id)
    if not names:
        return []
    if len(function.parameters) != 2:
        message = f"{function.id} is scanned with {names[0]}, and does not take a carry and a layer"
        raise LoomError(message, function.where, f"Write `def {function.node.name}(x, layer: Block):`.")
    layer = function.parameters[1]
    start, end = function.source.span(layer)[0], _parameter_end(function, layer)
    return [plan.insert(start, _inputs(function), names[0], end)]


def _inputs(function: Function) -> str:
    """A name for a layer and what is taken apart with it that the function has no other use for."""
    used = names_in(function.node)
    numbered = (f"layer_inputs_{number}" for number in itertools.count(2))
    names = itertools.chain(("inputs", "scanned", "layer_inputs"), numbered)
    return next(name for name in names if name not in used)


def _opening(plan: Plan, function: Function) -> list[Edit]:
    """What providers make at the top of a function, and the inputs of a scanned function taken apart."""
    source, scanned = function.source, plan.scanned(function.id)
    first = next((statement for statement in function.node.body if not is_docstring(statement)), None)
    if first is None:
        return []
    offset, indent = source.lines(first)[0], " " * source.indent(first)
    edits = []
    if scanned:
        names = ", ".join([function.parameter_names[1], *scanned])
        edits.append(plan.insert(offset, f"{indent}{names} = {_inputs(function)}\n", scanned[0]))
    for name in provider_order(plan, function):
        provider = plan.values[name].providers[function.id]
        given = plan.values[name].literal(function.id)  # by the default of the parameter
        if not (given or is_own(function, provider) or inlined(plan, function, name)):
            edits.append(Edit(offset, offset, made(plan, function, provider, indent)))
    for name, value in plan.values.items():
        if function.id in value.split and value.per_layer and "None" in value.annotation:
            text = f"{indent}{name} = {name} or (None,) * {len(value.split[function.id])}\n"
            edits.append(plan.insert(offset, text, name))
    return edits


def _arguments(plan: Plan, call: Call) -> list[Edit]:
    """Adds arguments where the new parameters stand: by position as long as that is next, else by keyword."""
    names, node = plan.passed(call), call.node
    if not names:
        return []
    caller, callee = plan.graph.functions[call.caller], plan.graph.functions[call.callee]
    source = caller.source
    opening = source.text.index("(", source.with_parentheses(node.func)[1]) + 1
    _check_arguments(plan, call, names[0], opening)
    items = [source.with_parentheses(argument, opening) for argument in node.args]
    items += [source.span(keyword) for keyword in node.keywords]
    order = _final_positions(plan, callee)
    required = [name for name in names if name in plan.required(callee.id)]
    first_default = sum(not callee.has_default(parameter) for parameter in callee.positional)
    written = {name: plan.item(call, name) for name in names}
    for name in names:
        if written[name] == name and (path := inlined(plan, caller, name)):
            written[name] = path
    edits, position, keyword = [], call.positional, bool(node.keywords)
    if required and call.positional > first_default:  # before the arguments that fill defaults by position
        edits += _insert(plan, items, first_default, [(written[name], required[0]) for name in required], opening)
        position, names = position + len(required), [name for name in names if name not in required]
    added = []
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        if not keyword and order.get(name) == position:
            text, position = written[name], position + 1
        else:
            text, keyword = f"{name}={written[name]}", True
        added.append((text, name))
    return edits + _insert(plan, items, len(items), added, opening)


def _check_arguments(plan: Plan, call: Call, name: str, opening: int) -> None:
    source, given = plan.graph.functions[call.caller].source, call.node.args
    what = "*arguments" if call.positional < len(given) else ""
    if given and isinstance(given[0], ast.GeneratorExp) and source.span(given[0])[0] < opening:
        what = "a generator"
    if what:
        message = f"{name} must be passed to {call.callee} here, after {what}"
        raise LoomError(message, source.where(call.node), "Write out the arguments of this call.")


def _final_positions(plan: Plan, function: Function) -> dict[str, int]:
    """The positional parameters of a function, once it takes what is threaded, with their positions."""
    own = function.positional
    names = [
        *(p.arg for p in own if not function.has_default(p)),
        *plan.required(function.id),
        *(p.arg for p in own if function.has_default(p)),
        *plan.optional(function.id),
    ]
    return {name: position for position, name in enumerate(names)}


def _scan_inputs(plan: Plan, call: Call) -> list[Edit]:
    """`lax.scan(block, x, layers)` becomes `lax.scan(block, x, (layers, cache))`."""
    names = plan.scanned(call.callee) if call.scan else []
    if not names:
        return []
    source = plan.graph.functions[call.caller].source
    if call.positional < 3 or call.starred:
        remedy = "Write `jax.lax.scan(block, x, self.layers)`, these three by position."
        raise LoomError(f"{names[0]} must go into this scan", source.where(call.node), remedy)
    start, end = source.with_parentheses(call.node.args[2], source.span(call.node.args[1])[1])
    more = ", ".join(plan.item(call, name) for name in names)
    return [plan.insert(start, "(", names[0]), plan.insert(end, f", {more})", names[0])]


def _marks(function: Function) -> list[Edit]:
    """The lines of emit and receive go."""
    edits, source, marks = [], function.source, {call for _, call in marks_of(function)}
    for statement in function.statements if marks else ():
        if statement_expression(statement) in marks:
            edits.append(Edit(*source.without_comments(statement), placeholder(statement, source)))
    return edits
