"""Makes the edits that a threading plan asks for: signatures, calls, returns, scans and what providers make."""

from __future__ import annotations

import re

import libcst as cst

from generator import syntax
from generator.errors import LoomError
from generator.fragment import Provider
from generator.traced import Edit, Traced
from generator.weave.calls import CallSite, Function
from generator.weave.names import as_block, unblocked, variables
from generator.weave.plan import Plan, wanted

_PATH = re.compile(r"[\w.]+(\[[\w\"']+\])*")  # a name, an attribute or an item: as short as a name of its own


def carry(plan: Plan) -> dict[str, Traced]:
    """The new text of each definition that the plan changes, by key."""
    edits: dict[str, list[Edit]] = {}
    for function in plan.graph.functions.values():
        changes = edits.setdefault(function.key, [])
        changes += _signature(plan, function)
        changes += _opening(plan, function)
        changes += _returns(plan, function)
        changes += _marks(function)
    for index, call in enumerate(plan.graph.calls):
        caller = plan.graph.functions[call.caller]
        changes = edits.setdefault(caller.key, [])
        changes += _arguments(plan, call, plan.passed.get(index, []))
        changes += _scan_inputs(plan, call)
        changes += _targets(plan, call)
    return {key: plan.graph.sources[key].traced.edited(changes) for key, changes in edits.items() if changes}


def _insert(plan: Plan, offset: int, text: str, name: str, end: int | None = None) -> Edit:
    return Edit(offset, offset if end is None else end, Traced.insert(text, plan.values[name].origin))


def _annotated(function: Function) -> bool:
    own = [parameter for parameter in function.parameters if parameter.name.value != "self"]
    return any(parameter.annotation for parameter in own) or function.node.returns is not None


def _signature(plan: Plan, function: Function) -> list[Edit]:
    """Required parameters after the required ones, optional parameters last."""
    edits, source = [], function.source
    own = list(function.node.params.params)
    required = plan.required.get(function.id, [])
    optional = plan.optional.get(function.id, [])
    open_parenthesis = source.text.index("(", source.span(function.node.name)[1]) + 1
    before_defaults = [parameter for parameter in own if parameter.default is None]
    for names, group, default in ((required, before_defaults, ""), (optional, own, " = None")):
        if not names:
            continue
        offset = _parameter_end(function, group[-1]) if group else open_parenthesis
        parts = []
        for name in names:
            kind = plan.values[name].annotation if _annotated(function) else ""
            kind = f"{kind} | None" if kind and default and "None" not in kind else kind
            kind = f": {kind}" if kind else ""
            parts.append(f"{name}{kind}{default if kind else default.replace(' ', '')}")
        text = ", ".join(parts)
        edits.append(_insert(plan, offset, f", {text}" if group else text, names[0]))
    if function.id in plan.scanned:
        layer = own[1]
        start, end = source.span(layer.name)[0], _parameter_end(function, layer)
        names = plan.scanned[function.id]
        edits.append(_insert(plan, start, "inputs", names[0], end))
    return edits


def _parameter_end(function: Function, parameter: cst.Param) -> int:
    """libcst's position of a parameter ends with its name."""
    last = parameter.default or (parameter.annotation.annotation if parameter.annotation else parameter.name)
    return function.source.span(last)[1]


def _opening(plan: Plan, function: Function) -> list[Edit]:
    """What providers make at the top of a function, and the inputs of a scanned function taken apart."""
    source = function.source
    statements = syntax.body(function.node)
    first = next((s for s in statements if not syntax.is_docstring(s)), None)
    if first is None:
        return []
    offset, indent = source.lines(first)[0], " " * source.indent(first)
    edits = []
    if function.id in plan.scanned:
        names = plan.scanned[function.id]
        layer = function.node.params.params[1].name.value
        edits.append(_insert(plan, offset, f"{indent}{layer}, {', '.join(names)} = inputs\n", names[0]))
    for name in _provider_order(plan, function):
        provider = plan.values[name].providers[function.id]
        if not (_inlined(plan, function, name) or provider.optional and provider.result.text.strip() == "None"):
            edits.append(Edit(offset, offset, _made(plan, function, provider, indent)))
    return edits


def _provider_order(plan: Plan, function: Function) -> list[str]:
    """What a provider reads comes before it."""
    waiting, done = list(plan.provided.get(function.id, ())), []
    while waiting:
        ready = next(
            (n for n in waiting if not set(plan.values[n].providers[function.id].reads) & (set(waiting) - {n})), None
        )
        if ready is None:
            origin = plan.values[waiting[0]].origin
            raise LoomError(f"{' and '.join(waiting)} are made from each other", str(origin), "Break the circle.")
        waiting.remove(ready)
        done.append(ready)
    return done


def _made(plan: Plan, function: Function, provider: Provider, indent: str) -> Traced:
    """`name = result`, or `if name is None: name = result` where callers may hand it in."""
    name, cause = provider.value, provider.origin
    inner = indent + ("    " if provider.optional else "")
    parts = [Traced.insert(f"{indent}if {name} is None:\n", cause)] if provider.optional else []
    if provider.body.text:
        parts.append(syntax.reindent(_in_names_of(plan, function, provider, provider.body), len(inner)))
    result = _in_names_of(plan, function, provider, Traced.insert(" ", cause) + provider.result)
    parts += [Traced.insert(f"{inner}{name} =", cause), result, Traced.insert("\n", cause)]
    return Traced.join(parts)


def _in_names_of(plan: Plan, function: Function, provider: Provider, text: Traced) -> Traced:
    """The provider's text with `config` read from where the site has it, and every name checked."""
    known = {*function.parameter_names, *plan.required.get(function.id, ()), *plan.optional.get(function.id, ())}
    known |= set(plan.provided.get(function.id, ())) | {"self"}
    replaced = {}
    for name in provider.reads:
        if name == "config" and name not in known and function.class_name in plan.graph.has_config:
            replaced[name] = "self.config"
        elif name not in known:
            raise LoomError(
                f"the provider of {provider.value} reads {name!r}, which {provider.site} ({function.where}) does not have",
                str(provider.origin),
                f"It has {', '.join(sorted(known - {'self'}))}.",
            )
    source = as_block(text)
    edits = []
    for node in variables(source.module):
        if node.value in replaced:
            start, end = source.span(node)
            edits.append(Edit(start, end, Traced.insert(replaced[node.value], source.traced.origin_at(start))))
    return unblocked(source.traced.edited(edits))


def _inlined(plan: Plan, function: Function, name: str) -> bool:
    """A value that is only passed on in one call, and made by a name, an attribute or an item."""
    provider = plan.values[name].providers.get(function.id)
    if provider is None or provider.optional or provider.body.text or not _PATH.fullmatch(provider.result.text.split("#")[0].strip()):
        return False
    passing = [i for i, call in enumerate(plan.graph.calls) if call.caller == function.id and name in plan.passed.get(i, ())]
    reads = any(node.value == name for node in variables(function.node))
    others = any(name in plan.values[n].providers[function.id].reads for n in plan.provided.get(function.id, ()))
    return len(passing) == 1 and not reads and not others


def _arguments(plan: Plan, call: CallSite, names: list[str]) -> list[Edit]:
    """Adds arguments where the new parameters stand: by position as long as that is next, else by keyword."""
    if not names:
        return []
    caller, callee = plan.graph.functions[call.caller], plan.graph.functions[call.callee]
    order = _final_parameters(plan, callee)
    position, keyword = call.positional, any(a.keyword or a.star for a in call.node.args)
    edits = []
    source = caller.source
    arguments = list(call.node.args)
    closing = source.span(call.node)[1] - 1
    for name in sorted(names, key=order.index):
        expression = name
        if _inlined(plan, caller, name):
            provider = plan.values[name].providers[caller.id]
            expression = _in_names_of(plan, caller, provider, Traced.insert(" ", provider.origin) + provider.result)
            expression = expression.text.split("#")[0].strip()
        if not keyword and order.index(name) == position:
            text, position = expression, position + 1
        elif order.index(name) < call.positional:
            at = source.span(arguments[order.index(name)])[0]
            edits.append(_insert(plan, at, f"{expression}, ", name))
            position += 1
            continue
        else:
            text, keyword = f"{name}={expression}", True
        at = source.span(arguments[-1].value)[1] if arguments else closing
        edits.append(_insert(plan, at, f", {text}" if arguments or edits else text, name))
    return edits


def _final_parameters(plan: Plan, function: Function) -> list[str]:
    own = [p for p in function.node.params.params if p.name.value != "self"]
    return [
        *(p.name.value for p in own if p.default is None),
        *plan.required.get(function.id, ()),
        *(p.name.value for p in own if p.default is not None),
        *plan.optional.get(function.id, ()),
        *(p.name.value for p in function.node.params.kwonly_params),
    ]


def _scan_inputs(plan: Plan, call: CallSite) -> list[Edit]:
    """`lax.scan(block, x, layers)` becomes `lax.scan(block, x, (layers, cache))`."""
    names = plan.scanned.get(call.callee, []) if call.scan else []
    if not names:
        return []
    source = plan.graph.functions[call.caller].source
    start, end = source.span(call.node.args[2].value)
    return [
        _insert(plan, start, "(", names[0]),
        _insert(plan, end, f", {', '.join(names)})", names[0]),
    ]


def _returns(plan: Plan, function: Function) -> list[Edit]:
    """`return x` becomes `return x, name`; in a scanned function the None of `return x, None` gives way."""
    names = plan.returned.get(function.id, [])
    if not names:
        return []
    source, edits = function.source, []
    scanned = any(call.scan for call in plan.graph.callers(function.id))
    for node in _own_returns(function.node):
        if node.value is None:
            raise LoomError(f"{function.id} returns nothing beside which {names[0]} could go", source.where(node))
        if scanned:
            if not isinstance(node.value, cst.Tuple) or syntax.dotted(node.value.elements[-1].value) != "None":
                raise LoomError("a scanned function does not end in `return carry, None`", source.where(node))
            start, end = source.span(node.value.elements[-1].value)
            edits.append(_insert(plan, start, _packed(names), names[0], end))
        elif not _passes_through(plan, function, node.value):
            end = source.span(node.value)[1]
            edits.append(_insert(plan, end, f", {', '.join(names)}", names[0]))
    if function.node.returns is not None and not scanned:
        start, end = source.span(function.node.returns.annotation)
        kinds = ", ".join(plan.values[name].annotation for name in names)
        if source.text[start:end].startswith("tuple["):
            edits.append(_insert(plan, end - 1, f", {kinds}", names[0]))
        else:
            edits += [_insert(plan, start, "tuple[", names[0]), _insert(plan, end, f", {kinds}]", names[0])]
    return edits


def _own_returns(function: cst.FunctionDef) -> list[cst.Return]:
    found = []

    def visit(node: cst.CSTNode) -> None:
        for child in syntax.children(node):
            if isinstance(child, cst.Return):
                found.append(child)
            elif not isinstance(child, (cst.FunctionDef, cst.Lambda)):
                visit(child)

    visit(function)
    return found


def _passes_through(plan: Plan, function: Function, value: cst.BaseExpression) -> bool:
    """`return f(x)` needs no change where f also returns just what this function does."""
    for call in plan.graph.calls:
        if call.caller == function.id and call.node is value:
            return plan.returned.get(call.callee, []) == plan.returned[function.id]
    return False


def _packed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _targets(plan: Plan, call: CallSite) -> list[Edit]:
    """`x = f(x)` becomes `x, name = f(x)`."""
    names = wanted(plan, call)
    if not names:
        return []
    caller = plan.graph.functions[call.caller]
    source, value = caller.source, plan.returned[call.callee][0]
    small = syntax.simple(call.statement)
    if isinstance(small, cst.Return) and small.value is call.node and _passes_through(plan, caller, call.node):
        return []
    if not (isinstance(small, cst.Assign) and small.value is call.node and len(small.targets) == 1):
        raise LoomError(
            f"{call.callee} also returns {', '.join(plan.returned[call.callee])}, and its result has no name here",
            source.where(call.statement),
            "Write the call as a statement of its own: `name = call(...)`.",
        )
    target = small.targets[0].target
    if call.scan:
        if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
            raise LoomError("the result of a scan is not taken as `carry, _ = ...`", source.where(call.statement))
        start, end = source.span(target.elements[1].value)
        return [_insert(plan, start, _packed(names), value, end)]
    if isinstance(target, cst.Tuple) and target.lpar:
        return [_insert(plan, source.span(target)[1] - 1, f", {', '.join(names)}", value)]
    return [_insert(plan, source.span(target)[1], f", {', '.join(names)}", value)]


def _marks(function: Function) -> list[Edit]:
    """The lines of emit and receive go."""
    edits, source = [], function.source
    for statement in syntax.walk(function.node):
        if syntax.called(syntax.expression(statement)) in ("emit", "receive") and not _nested(function, statement):
            start = source.text.rfind("\n", 0, source.span(statement)[0]) + 1
            edits.append(Edit(start, source.lines(statement)[1], Traced()))
    return edits


def _nested(function: Function, statement: cst.CSTNode) -> bool:
    """Whether the statement belongs to a function nested in this one."""
    return any(
        isinstance(inner, cst.FunctionDef) and inner is not function.node and statement in syntax.walk(inner)
        for inner in syntax.walk(function.node)
    )
