"""Writes out what a host says once for all layers, by the pattern in which the architecture repeats them.

before, in model/period                      after, for pattern = ["local", "full"]
    with each_layer():                           x = self.local(x)
        x = self.layer(x)                        x = self.full(x, angles=global_angles)

`each_group` repeats statements for each group of layers that is scanned, `each_layer` for each layer of a pattern;
those of `last_layer` are for a layer that is like the last one.
`sum_layers(x)` is the sum of `x` over the layers that have the fragment, `stack_layers(x)` is `x` for each stack of
layers, in the structure in which a scan takes them, `layer_numbers()` says which layers are stacked where, and
`own_layers()` which have the fragment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import libcst as cst

from generator.code import syntax
from generator.code.names import as_block, in_place, unblocked, variables
from generator.code.scopes import scopes_of
from generator.code.syntax import Source
from generator.code.traced import Edit, Origin, Traced
from generator.errors import LoomError
from generator.language.parts import Definition
from generator.recipe.pattern import ALL, Group, Kind, Pattern, factor
from generator.weave.adapt import Need

_BLOCKS = "each_group", "each_layer", "last_layer"
_SUMS = {"sum_layers": 1, "stack_layers": 1, "layer_numbers": 0, "own_layers": 0}  # word -> its arguments


def count_layers(text: Traced, fragment: str, pattern: Pattern) -> Traced:
    """Replaces the expressions that count layers.

    Args:
        text: whole statements of a fragment, indented or not.
        fragment: its name: `sum_layers` is over the layers that have it.
    """
    if not any(f"{word}(" in text.text for word in _SUMS):
        return text
    source = as_block(text) if text.text.startswith(" ") else Source(text)
    parents = {child: node for node in syntax.walk(source.module) for child in syntax.children(node)}
    edits = []
    for node in syntax.walk(source.module):
        word = syntax.called(node)
        if word in _SUMS:
            (start, end), call = source.span(node), cst.ensure_type(node, cst.Call)
            if len(call.args) != _SUMS[word]:
                remedy = "Write sum_layers(X), stack_layers(X), layer_numbers() or own_layers()."
                raise LoomError(f"{word}() cannot be read", source.where(node), remedy)
            inner = source.code(call.args[0].value).strip() if call.args else ""
            new = _counted(word, inner, pattern, pattern.having(fragment))
            new = in_place(new, parents.get(node))
            edits.append(Edit(start, end, Traced.insert(new, source.traced.origin_at(start))))
    woven = source.traced.edited(edits)
    return unblocked(woven) if text.text.startswith(" ") else woven


def _counted(word: str, inner: str, pattern: Pattern, kinds: list[Kind]) -> str:
    if word == "layer_numbers":
        return "{" + ", ".join(f'"{path}": {numbers}' for path, numbers in pattern.numbers().items()) + "}"
    if word == "own_layers":
        return pattern.numbers_of(kind.name for kind in kinds)
    if word == "stack_layers":
        stacks = [_stack(inner, group) for group in pattern.groups]
        return stacks[0] if len(stacks) == 1 else f"({', '.join(stacks)})"
    summands: dict[str, list[str]] = {}  # what a layer adds -> the kinds that add it
    for kind in kinds:
        summands.setdefault(_in_kind(inner, kind), []).append(kind.name)
    terms = []
    for summand, names in summands.items():
        amount = pattern.amount(names)
        terms.append(amount if summand == "1" else f"{factor(amount)} * {factor(summand)}")
    joined = " + ".join(terms)
    return f"({joined})" if len(terms) > 1 or joined != factor(joined) else joined


def _stack(inner: str, group: Group) -> str:
    one = _with(inner, {ALL: group.count})
    return one if group.period == 1 else f"tuple({one} for _ in range({group.period}))"


def _in_kind(inner: str, kind: Kind) -> str:
    """An expression with what the layers of a kind are made with in place of its names."""
    return _with(inner, kind.init)


def _with(expression: str, replaced: dict[str, str]) -> str:
    source = Source(Traced.copy(expression, ""))
    return source.traced.edited(_replacements(source, replaced)).text


def write_out(
    definitions: dict[str, Definition],
    pattern: Pattern,
    blocks: dict[str, str],
    threaded: Iterable[str],
) -> tuple[dict[str, Definition], list[Need], set[str]]:
    """Repeats what stands in `with each_group():` and `with each_layer():`, and unwraps `with last_layer():`.

    Args:
        blocks: kind of layer -> the name of its class.
        threaded: names of the values that travel through functions.

    Returns:
        The definitions; what threading has to bring to the calls of layers; and the functions that call several layers
        or scans one after the other, in which a value of each layer is one of a tuple.

    Raises:
        LoomError: groups of which more than one has a pattern of several layers.
    """
    woven, needs, several = dict(definitions), [], set()
    periodic = [group for group in pattern.groups if group.period > 1]
    for key, definition in definitions.items():
        while any(f"{word}(" in woven[key].text.text for word in _BLOCKS):
            source = Source(woven[key].text)
            statement, function = _first(source)
            word = syntax.called(statement.items[0].item)
            if word == "each_layer" and not periodic:  # the class of a period, which nothing has
                del woven[key]
                break
            if word == "each_layer" and len(periodic) > 1:
                message = f"{definition.fragment} writes out a period, and {len(periodic)} groups of layers have one"
                remedy = "Give one group a pattern of several kinds."
                raise LoomError(message, source.where(statement), remedy)
            if word == "each_layer":
                copies = _each_layer(periodic[0], pattern, blocks)
            elif word == "last_layer":
                copies = [_one_layer(pattern.last, "layer", blocks)]
            else:
                copies = _each_group(pattern, blocks)
            if len(copies) > 1:
                several.add(function)
            called = {syntax.called(node) for node in syntax.walk(statement)}
            needs += [
                Need(function, name, definition.fragment, copy.origin, word, source.where(statement))
                for copy in copies
                for callee, given in _given(copy).items()
                if callee in called
                for expression in given.values()
                for name in _names(expression)
                if name in threaded
            ]
            woven[key] = replace(woven[key], text=_repeat(statement, source, copies))
    return woven, needs, several


class _Copy:
    """What changes in one copy of repeated statements."""

    def __init__(self, renamed: dict[str, str], init: dict[str, str], call: dict[str, str], origin: Origin):
        self.renamed, self.init, self.call, self.origin = renamed, init, call, origin


def check_given(definitions: dict[str, Definition], pattern: Pattern, blocks: dict[str, str]) -> None:
    """Refuses what layers of a kind are made or called with, and no fragment takes.

    Args:
        definitions: threaded.
        blocks: kind of layer -> the name of its class.

    Raises:
        LoomError: at the line of the kind's `init` or `call`.
    """
    for kind in pattern.kinds.values():
        for key, given, method in (("init", kind.init, "__init__"), ("call", kind.call, "__call__")):
            if not given or blocks[kind.name] not in definitions:
                continue
            (made,) = Source(definitions[blocks[kind.name]].text).module.body
            taken = [
                parameter.name.value
                for member in syntax.body(made)
                if isinstance(member, cst.FunctionDef) and member.name.value == method
                for parameter in (*member.params.params, *member.params.kwonly_params)
            ]
            for name in given:
                if name not in taken:
                    message = f"layers of the kind {kind.name!r} are given {name!r}, which no selected fragment takes"
                    raise LoomError(message, str(kind.lines[key]), "Select a fragment that takes it, or remove it.")


def _each_layer(group: Group, pattern: Pattern, blocks: dict[str, str]) -> list[_Copy]:
    layers = zip(group.attributes, group.pattern, strict=True)
    return [_one_layer(pattern.kinds[name], attribute, blocks) for attribute, name in layers]


def _one_layer(kind: Kind, attribute: str, blocks: dict[str, str]) -> _Copy:
    renamed = {"self.layer": f"self.{attribute}", "Block": blocks[kind.name]}
    return _Copy(renamed, kind.init, kind.call, kind.origin or Origin("", 1))


def _each_group(pattern: Pattern, blocks: dict[str, str]) -> list[_Copy]:
    copies = []
    for group in pattern.groups:
        kind = pattern.kinds[group.pattern[0]] if group.period == 1 else Kind("")
        renamed = {"Block": blocks[kind.name] if group.period == 1 else "Period", ALL: group.count}
        renamed[f"self.{ALL}"] = _with(group.count, {"config": "self.config"})
        if group.name:
            renamed |= {"self.layers": f"self.{group.name}_layers", "block": f"{group.name}_block"}
        origin = kind.origin or group.origin or Origin("", 1)
        copies.append(_Copy(renamed, kind.init, kind.call, origin))
    return copies


def _names(expression: str) -> list[str]:
    return [name.value for name in variables(Source(Traced.copy(expression, "")).module)]


def _first(source: Source) -> tuple[cst.With, str]:
    """The first block to repeat, and the id of the function or method that it stands in."""
    for statement in source.module.body:
        members = syntax.body(statement) if isinstance(statement, cst.ClassDef) else [statement]
        prefix = f"{statement.name.value}." if isinstance(statement, cst.ClassDef) else ""
        for member in members:
            for node in syntax.walk(member):
                if isinstance(node, cst.With) and syntax.called(node.items[0].item) in _BLOCKS:
                    return node, prefix + cst.ensure_type(member, cst.FunctionDef).name.value
    raise LoomError(f"{'(), '.join(_BLOCKS)}() stand in `with`", str(source.traced.origin_at(0)), "Write so.")


def _repeat(statement: cst.With, source: Source, copies: list[_Copy]) -> Traced:
    """The source with copies of the statements in place of the block."""
    body = syntax.body(statement)
    inside = source.traced[source.lines(body[0])[0] : source.lines(body[-1])[1]]
    start, end = source.text.rfind("\n", 0, source.span(statement)[0]) + 1, source.lines(statement)[1]
    width = source.indent(statement)
    new = Traced.join(syntax.reindent(_changed(inside, copy), width) for copy in copies)
    return source.traced.edited([Edit(start, end, new)])


def _changed(inside: Traced, copy: _Copy) -> Traced:
    source = as_block(inside)
    edits = _replacements(source, copy.renamed)
    for node in syntax.walk(source.module):
        if isinstance(node, cst.Call) and (more := _arguments(node, copy)):
            end = source.span(node.args[-1].value)[1]
            edits.append(Edit(end, end, Traced.insert(f", {more}", copy.origin)))
    return unblocked(source.traced.edited(edits))


def _replacements(source: Source, replaced: dict[str, str]) -> list[Edit]:
    """Edits that put expressions in place of names and of attributes of names, where no inner scope binds the name."""
    scopes, edits = scopes_of(source.module), []
    names = {name for name, scope in scopes.occurrences if scope.binder(name.value) in (None, scopes.module)}

    def visit(node: cst.CSTNode, parent: cst.CSTNode | None) -> None:
        path, first = syntax.dotted(node), node
        while isinstance(first, cst.Attribute):
            first = first.value
        if path in replaced and first in names:
            start, end = source.span(node)
            new = in_place(replaced[path], parent)
            edits.append(Edit(start, end, Traced.insert(new, source.traced.origin_at(start))))
        else:
            for child in syntax.children(node):
                visit(child, node)

    visit(source.module, None)
    return edits


def _arguments(call: cst.Call, copy: _Copy) -> str:
    """What a layer is made or called with beyond what all layers are."""
    given = _given(copy).get(syntax.called(call), {})
    return ", ".join(f"{name}={expression}" for name, expression in given.items())


def _given(copy: _Copy) -> dict[str, dict[str, str]]:
    """What is called -> parameter -> the expression that it is given."""
    return {"Block": copy.init, "layer": copy.call, "self.layer": copy.call}
