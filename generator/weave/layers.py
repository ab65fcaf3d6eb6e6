"""Unrolls loops over layers, by the pattern in which the architecture repeats them.

before, in model/period                      after, for pattern = ["local", "full"]
    for layer in layers.period:                  x = self.local(x)
        x = layer.module(x)                      x = self.full(x, angles=global_angles)

A loop over `layers.groups` is repeated for each group of layers that is scanned, one over `layers.period` for each
layer of the pattern of a group; `layers.last` is a layer like the last one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, replace

from generator.code.arguments import add_arguments
from generator.code.bindings import scopes_of
from generator.code.edits import Edits
from generator.code.renaming import rename, replace_names
from generator.code.traced import Origin, Traced
from generator.code.tree import FUNCTIONS, TracedTree, dotted_name, parameters, parse, walk
from generator.errors import LoomError
from generator.language.parts import Definition
from generator.recipe.pattern import Group, Kind, Pattern
from generator.weave.adapt import Need
from generator.weave.count import WORD, free_occurrences, replace_members


def unroll_layers(
    definitions: dict[str, Definition], pattern: Pattern, blocks: dict[str, str]
) -> tuple[dict[str, Definition], list[Need], set[str]]:
    """Unrolls the loops over layers.

    Args:
        blocks: kind of layer -> the name of its class.

    Returns:
        The definitions; the values that threading must bring to calls of layers; and the functions that call several
        layers or scans one after the other, in which a value of each layer is one of a tuple.
    """
    (woven, groups), needs, sequential = _copy_periods(definitions, pattern), list[Need](), set[str]()
    for key, definition in list(woven.items()):
        while place := _find_reference(TracedTree(woven[key].text)) if f"{WORD}." in woven[key].text.text else None:
            copies = _layer_copies(place, pattern, blocks, groups.get(key))
            if len(copies) > 1:
                sequential.add(place.function)
            text, reads = _unroll(place, copies)
            at = f"{WORD}.{place.member}", place.where
            needs += [
                Need(place.function, name, definition.fragment, origin, *at, is_optional=True) for origin, name in reads
            ]
            woven[key] = replace(woven[key], text=text)
    return woven, needs, sequential


def check_layer_arguments(definitions: dict[str, Definition], pattern: Pattern, blocks: dict[str, str]) -> None:
    """Refuses arguments for layers of a kind that no fragment takes.

    Args:
        definitions: threaded.
        blocks: kind of layer -> the name of its class.
    """
    for kind in pattern.kinds.values():
        for key, arguments, method in (("init", kind.init, "__init__"), ("call", kind.call, "__call__")):
            block = definitions.get(blocks[kind.name])
            members = walk(parse(block.text.text).module) if arguments and block else ()
            functions = [node for node in members if isinstance(node, FUNCTIONS) and node.name == method]
            accepted = {parameter.arg for function in functions for parameter in parameters(function)}
            if block and (missing := [name for name in arguments if name not in accepted]):
                message = f"layers of the kind {kind.name!r} are given {missing[0]!r}, which no selected fragment takes"
                raise LoomError(message, str(kind.lines[key]), "Select a fragment that takes it, or remove it.")


@dataclass(frozen=True)
class _LayerReference:
    """A loop over groups or a period, or all references to the last layer.

    Attributes:
        member: `groups`, `period` or `last`.
        function: id of the function or method.
        config: the expression of the config there.
    """

    member: str
    node: ast.AST
    function: str
    config: str
    source: TracedTree

    @property
    def where(self) -> str:
        return self.source.where(self.node)


@dataclass(frozen=True)
class _LayerCopy:
    """A copy of a loop's body or of a reference, for one layer or group.

    Attributes:
        members: member of the layer or group -> expression.
        init, call: further arguments that a layer is made and called with.
        prefix: of the functions that the copy defines.
    """

    members: dict[str, str]
    init: dict[str, str]
    call: dict[str, str]
    origin: Origin
    prefix: str = ""


def _find_reference(source: TracedTree) -> _LayerReference | None:
    """Returns the first reference that is not unrolled yet."""
    words = free_occurrences(WORD, source)
    for statement in source.statements if words else ():
        prefix = f"{statement.name}." if isinstance(statement, ast.ClassDef) else ""
        for function in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            inner = scopes_of(source.tree).inner.get(function)
            config = "config" if inner and "config" in inner.bound else "self.config"
            for node in walk(function):
                member = node.iter if isinstance(node, ast.For) else node
                if isinstance(member, ast.Attribute) and member.value in words and isinstance(function, FUNCTIONS):
                    is_loop = isinstance(node, ast.For) and isinstance(node.target, ast.Name) and not node.orelse
                    fits = member.attr != "last" if is_loop else member is node and member.attr == "last"
                    if not fits:
                        remedy = f"Write `for group in {WORD}.groups:`, `for layer in {WORD}.period:` or `{WORD}.last`."
                        raise LoomError(f"{WORD}.{member.attr} cannot be read here", source.where(node), remedy)
                    return _LayerReference(member.attr, node, prefix + function.name, config, source)
    if words:
        place, remedy = source.where(next(iter(words))), "Read one of its members, in a function or a method."
        raise LoomError(f"{WORD} cannot be read here", place, remedy)
    return None


def _copy_periods(
    definitions: dict[str, Definition], pattern: Pattern
) -> tuple[dict[str, Definition], dict[str, Group]]:
    """Copies the class of a period for each group that has one, and leaves it out if none has.

    Returns:
        The definitions; the name of each class of a period -> its group.
    """
    copied, groups = dict[str, Definition](), dict[str, Group]()
    for key, definition in definitions.items():
        source = TracedTree(definition.text) if f"{WORD}.period" in definition.text.text else None
        if source is None or all(node.attr != "period" for node in _members(source)):
            copied[key] = definition
            continue
        for group in (group for group in pattern.groups if group.period > 1):
            name = pattern.period_class(group, key)
            edits = Edits(source)
            rename(edits, {key: name}.get)
            copied[name], groups[name] = replace(definition, name=name, text=edits.made()), group
    return copied, groups


def _members(source: TracedTree) -> list[ast.Attribute]:
    """Returns the references to members of the layers."""
    words = free_occurrences(WORD, source)
    return [node for node in walk(source.module) if isinstance(node, ast.Attribute) and node.value in words]


def _layer_copies(
    place: _LayerReference, pattern: Pattern, blocks: dict[str, str], period: Group | None
) -> list[_LayerCopy]:
    if place.member == "last":
        return [_copy_of_layer(pattern.last, "layer", blocks)]
    if place.member == "groups":
        return [_copy_of_group(group, place.config, pattern, blocks) for group in pattern.groups]
    layers = zip(period.attributes, period.pattern, strict=True) if period else ()
    return [_copy_of_layer(pattern.kinds[name], attribute, blocks) for attribute, name in layers]


def _copy_of_layer(kind: Kind, attribute: str, blocks: dict[str, str]) -> _LayerCopy:
    members = {"Block": blocks[kind.name], "module": f"self.{attribute}"}
    return _LayerCopy(members, kind.init, kind.call, kind.origin or Origin("", 1))


def _copy_of_group(group: Group, config: str, pattern: Pattern, blocks: dict[str, str]) -> _LayerCopy:
    kind = pattern.kinds[group.pattern[0]] if group.period == 1 else Kind("")
    origin = kind.origin or group.origin or Origin("", 1)
    members = {
        "Block": blocks[kind.name] if group.period == 1 else pattern.period_class(group),
        "count": replace_names(Traced.insert(group.count, origin), {"config": config}).text,
        "stack": f"self.{group.name}_layers" if group.name else "self.layers",
    }
    return _LayerCopy(members, kind.init, kind.call, origin, group.name)


def _unroll(place: _LayerReference, copies: list[_LayerCopy]) -> tuple[Traced, list[tuple[Origin, str]]]:
    """Returns the text with copies in place of a reference, and the names that they read, with the origins of these."""
    source, loop = place.source, place.node
    if not isinstance(loop, ast.For):
        (copy,) = copies
        text, reads = _copy(source, {node for node in _members(source) if node.attr == "last"}, copy)
        return text, [(copy.origin, name) for name in reads]
    block, names, edits = TracedTree(source.lines(loop.body[0], loop.body[-1])), [], Edits(source)
    nodes, statements = free_occurrences(dotted_name(loop.target), block), []
    for copy in copies:
        text, reads = _copy(block, nodes, copy)
        statements += edits.copy(text)
        names += [(copy.origin, name) for name in reads]
    edits.put(loop, statements)
    return edits.made(), names


def _copy(source: TracedTree, nodes: Collection[ast.AST], copy: _LayerCopy) -> tuple[Traced, list[str]]:
    """Returns one copy of a text, and the names in the arguments of its layers."""
    edits, reads = Edits(source), list[str]()
    replace_members(edits, source.module, nodes, copy.members)
    scopes = {use.node: use.scope for use in scopes_of(source.tree).occurrences}
    names: dict[ast.AST, str] = {  # function -> its parameter that is a layer
        node: parameter.arg
        for node in walk(source.module)
        if isinstance(node, FUNCTIONS)
        for parameter in parameters(node)
        if isinstance(parameter.annotation, ast.Attribute) and parameter.annotation.value in nodes
    }
    for node in (node for node in walk(source.module) if isinstance(node, ast.Call)):
        arguments: dict[str, str] = {}
        if isinstance(node.func, ast.Attribute) and node.func.value in nodes:
            arguments = copy.init if node.func.attr == "Block" else copy.call
        elif isinstance(node.func, ast.Name):
            scope = scopes[node.func].binder(node.func.id)
            arguments = copy.call if scope and names.get(scope.node) == node.func.id else {}
        if arguments:
            reads += [n.id for text in arguments.values() for n in walk(parse(text).module) if isinstance(n, ast.Name)]
            add_arguments(edits, node, [(f"{name}={text}", copy.origin) for name, text in arguments.items()])
    functions = {statement.name for statement in source.statements if isinstance(statement, FUNCTIONS)}
    if copy.prefix:
        rename(edits, lambda name: f"{copy.prefix}_{name}" if name in functions else None)
    return edits.made(), reads
