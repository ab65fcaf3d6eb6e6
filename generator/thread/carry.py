"""Makes the edits that a threading plan asks for: signatures, calls, returns, scans and what providers make."""

from __future__ import annotations

import itertools

import libcst as cst

from generator.code import syntax
from generator.code.names import variables
from generator.code.syntax import Source
from generator.code.traced import Edit, Traced
from generator.errors import LoomError
from generator.thread.functions import Call, Function
from generator.thread.outward import Shapes, return_edits, target_edits
from generator.thread.plan import Plan
from generator.thread.provided import expression, inlined, made, provider_order
from generator.thread.values import is_own, marks_of


def carry(plan: Plan) -> dict[str, Traced]:
    """The new text of each definition that the plan changes, by key."""
    edits: dict[str, list[Edit]] = {}
    shapes = Shapes(plan)
    for function in plan.graph.functions.values():
        changes = edits.setdefault(function.key, [])
        changes += _signature(plan, function)
        changes += _opening(plan, function)
        changes += return_edits(plan, function, shapes)
        changes += _marks(function)
    for call in plan.graph.calls:
        caller = plan.graph.functions[call.caller]
        changes = edits.setdefault(caller.key, [])
        changes += _arguments(plan, call, plan.passed(call))
        changes += _scan_inputs(plan, call)
        changes += target_edits(plan, call, shapes)
    return {key: plan.graph.sources[key].traced.edited(changes) for key, changes in edits.items() if changes}


def _annotated(function: Function) -> bool:
    own = [parameter for parameter in function.parameters if parameter.name.value != "self"]
    return any(parameter.annotation for parameter in own) or function.node.returns is not None


def _signature(plan: Plan, function: Function) -> list[Edit]:
    """Required parameters after the required ones, optional parameters last."""
    edits, source = [], function.source
    own = list(function.node.params.params)
    required, optional = plan.required(function.id), plan.optional(function.id)
    if required or optional:
        _check_signature(plan, function, (required or optional)[0])
    before_defaults = [parameter for parameter in own if parameter.default is None]
    asked = [_written(plan, function, name) for name in required]
    asked += [_written(plan, function, name, _default(plan, function, name)) for name in optional]
    if asked and not own:
        at = source.text.index("(", source.span(function.node.name)[1]) + 1
        more = ", " if function.parameters or function.node.params.star_kwarg else ""
        return [plan.insert(at, ", ".join(asked) + more, (required or optional)[0])]
    if not before_defaults and required:
        at = source.span(own[0].name)[0]
        edits.append(plan.insert(at, f"{', '.join(asked[: len(required)])}, ", required[0]))
    elif required:
        at = _parameter_end(function, before_defaults[-1])
        edits.append(plan.insert(at, f", {', '.join(asked[: len(required)])}", required[0]))
    if optional:
        edits.append(
            plan.insert(_parameter_end(function, own[-1]), f", {', '.join(asked[len(required) :])}", optional[0])
        )
    return edits + _scanned_parameter(plan, function)


def _written(plan: Plan, function: Function, name: str, default: str = "") -> str:
    """A parameter as the signature has it: annotated where its own are."""
    kind = plan.annotation(function.id, name) if _annotated(function) else ""
    kind = f"{kind} | None" if kind and default == "None" and "None" not in kind else kind
    given = f" = {default}" if default and kind else f"={default}" if default else ""
    return f"{name}: {kind}{given}" if kind else f"{name}{given}"


def _default(plan: Plan, function: Function, name: str) -> str:
    """What the parameter is where a caller does not have the value; None: a statement at the top makes it then."""
    return plan.values[name].literal(function.id) or "None"


def _check_signature(plan: Plan, function: Function, name: str) -> None:
    """New parameters have no place beside `*args` and `/`, nor beside `**kwargs` that calls give their name to."""
    params = function.node.params
    starred = [c for c in plan.graph.callers(function.id) if c.starred or c.supplies(function, name)]
    if params.posonly_params or isinstance(params.star_arg, cst.Param) or (params.star_kwarg and starred):
        remedy = "Write out its parameters, without * and /."
        raise LoomError(
            f"{function.id} must take {name}, and its parameters leave no place for it", function.where, remedy
        )


def _scanned_parameter(plan: Plan, function: Function) -> list[Edit]:
    """The parameter of a scanned function that stands for a layer becomes the inputs of the scan."""
    names = plan.scanned(function.id)
    if not names:
        return []
    if len(function.parameters) != 2:
        message = f"{function.id} is scanned with {names[0]}, and does not take a carry and a layer"
        raise LoomError(message, function.where, f"Write `def {function.node.name.value}(x, layer: Block):`.")
    layer = function.parameters[1]
    return [
        plan.insert(function.source.span(layer.name)[0], _inputs(function), names[0], _parameter_end(function, layer))
    ]


def _inputs(function: Function) -> str:
    """A name for a layer and what is taken apart with it that the function has no other use for."""
    used = {node.value for node in variables(function.node)}
    names = itertools.chain(
        ("inputs", "scanned", "layer_inputs"), (f"layer_inputs_{number}" for number in itertools.count(2))
    )
    return next(name for name in names if name not in used)


def _parameter_end(function: Function, parameter: cst.Param) -> int:
    """libcst's position of a parameter ends with its name."""
    last = parameter.default or (parameter.annotation.annotation if parameter.annotation else parameter.name)
    return function.source.span(last)[1]


def _opening(plan: Plan, function: Function) -> list[Edit]:
    """What providers make at the top of a function, and the inputs of a scanned function taken apart."""
    source, provided = function.source, provider_order(plan, function)
    statements = syntax.body(function.node)
    first = next((s for s in statements if not syntax.is_docstring(s)), None)
    scanned = plan.scanned(function.id)
    absent = [
        (value.name, len(value.split[function.id]))
        for value in plan.values.values()
        if function.id in value.split and value.per_layer and "None" in value.annotation
    ]
    if first is None or not (provided or scanned or absent):
        return []
    offset, indent = source.lines(first)[0], " " * source.indent(first)
    edits = []
    if scanned:
        names = ", ".join([function.parameter_names[1], *scanned])
        edits.append(plan.insert(offset, f"{indent}{names} = {_inputs(function)}\n", scanned[0]))
    for name in provided:
        provider = plan.values[name].providers[function.id]
        given = plan.values[name].literal(function.id)  # by the default of the parameter
        if not (given or is_own(function, provider) or inlined(plan, function, name)):
            edits.append(Edit(offset, offset, made(plan, function, provider, indent)))
    for name, count in absent:
        edits.append(plan.insert(offset, f"{indent}{name} = {name} or (None,) * {count}\n", name))
    return edits


def _arguments(plan: Plan, call: Call, names: list[str]) -> list[Edit]:
    """Adds arguments where the new parameters stand: by position as long as that is next, else by keyword."""
    if not names:
        return []
    caller, callee = plan.graph.functions[call.caller], plan.graph.functions[call.callee]
    source, arguments = caller.source, list(call.node.args)
    _check_arguments(plan, call, names)
    order = _final_positions(plan, callee)
    required = [name for name in names if name in plan.required(callee.id)]
    first_default = len([p for p in callee.positional if p.default is None])
    split = {name: plan.item(call, name) for name in names}
    written = {name: split[name] if split[name] != name else expression(plan, caller, name) for name in names}
    edits, position, keyword = [], call.positional, any(argument.keyword or argument.star for argument in arguments)
    if required and call.positional > first_default:  # before the arguments that fill defaults by position
        at = source.span(arguments[first_default].value)[0]
        edits.append(plan.insert(at, "".join(f"{written[name]}, " for name in required), required[0]))
        position, names = position + len(required), [name for name in names if name not in required]
    at = source.span(arguments[-1].value)[1] if arguments else _closing(call, source)
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        if not keyword and order.get(name) == position:
            text, position = written[name], position + 1
        else:
            text, keyword = f"{name}={written[name]}", True
        edits.append(plan.insert(at, f", {text}" if arguments or edits else text, name))
    return edits


def _closing(call: Call, source: Source) -> int:
    """The offset of the parenthesis that closes a call without arguments."""
    start, end = source.span(call.node)
    for _ in call.node.rpar:
        end = source.text.rindex(")", start, end)
    return source.text.rindex(")", start, end)


def _check_arguments(plan: Plan, call: Call, names: list[str]) -> None:
    caller, arguments = plan.graph.functions[call.caller], call.node.args
    where = caller.source.where(call.node)
    generator = len(arguments) == 1 and isinstance(arguments[0].value, cst.GeneratorExp) and not arguments[0].value.lpar
    if any(argument.star == "*" for argument in arguments) or generator:
        what = "a generator" if generator else "*arguments"
        message = f"{names[0]} must be passed to {call.callee} here, after {what}"
        raise LoomError(message, where, "Write out the arguments of this call.")


def _final_positions(plan: Plan, function: Function) -> dict[str, int]:
    """The positional parameters of a function, once it takes what is threaded, with their positions."""
    own = function.positional
    names = [
        *(p.name.value for p in own if p.default is None),
        *plan.required(function.id),
        *(p.name.value for p in own if p.default is not None),
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
    start, end = source.span(call.node.args[2].value)
    return [
        plan.insert(start, "(", names[0]),
        plan.insert(end, f", {', '.join(plan.item(call, name) for name in names)})", names[0]),
    ]


def _marks(function: Function) -> list[Edit]:
    """The lines of emit and receive go."""
    edits, source, marks = [], function.source, {call for _, call in marks_of(function)}
    for statement in syntax.statements(function.node) if marks else ():
        if syntax.expression(statement) in marks:
            start = source.text.rfind("\n", 0, source.span(statement)[0]) + 1
            edits.append(Edit(start, source.lines(statement)[1], syntax.placeholder(statement, source)))
    return edits
