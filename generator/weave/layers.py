"""Writes out what a host says once of all layers, by the pattern in which the architecture repeats them.

before, in model/period                      after, for pattern = ["local", "full"]
    for layer in layers.period:                  x = self.local(x)
        x = layer.module(x)                      x = self.full(x, angles=global_angles)

A loop over `layers.groups` is repeated for each group of layers that is scanned, one over `layers.period` for each
layer of the pattern of a group; `layers.last` is a layer like the last one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from generator.code.bindings import rename, scopes_of
from generator.code.traced import Edit, Origin, Traced
from generator.code.tree import FUNCTIONS, TracedTree, dotted_name, parameters, parse, reindent, walk
from generator.errors import LoomError
from generator.language.parts import Definition
from generator.recipe.pattern import Group, Kind, Pattern
from generator.weave.adapt import Need
from generator.weave.count import WORD, member_edits, unbound


def write_out(
    definitions: dict[str, Definition],
    pattern: Pattern,
    blocks: dict[str, str],
    threaded: Iterable[str],
) -> tuple[dict[str, Definition], list[Need], set[str]]:
    """Repeats the loops over layers.

    Args:
        blocks: kind of layer -> the name of its class.
        threaded: names of the values that travel through functions.

    Returns:
        The definitions; what threading has to bring to the calls of layers; and the functions that call several layers
        or scans one after the other, in which a value of each layer is one of a tuple.
    """
    woven, needs, several = dict(definitions), [], set()
    carried = frozenset(threaded)
    periodic = [group for group in pattern.groups if group.period > 1]
    for key, definition in definitions.items():
        while place := _first(TracedTree(woven[key].text)) if f"{WORD}." in woven[key].text.text else None:
            if place.member == "period" and not periodic:  # the class of a period, which nothing has
                del woven[key]
                break
            if place.member == "period" and len(periodic) > 1:
                message = f"{definition.fragment} writes out a period, and {len(periodic)} groups of layers have one"
                raise LoomError(message, place.where, "Give one group a pattern of several kinds.")
            copies = _copies(place, pattern, blocks)
            if len(copies) > 1:
                several.add(place.function)
            text, reads = _repeated(place, copies)
            needs += [
                Need(place.function, name, definition.fragment, origin, f"{WORD}.{place.member}", place.where)
                for origin, name in reads
                if name in carried
            ]
            woven[key] = replace(woven[key], text=text)
    return woven, needs, several


def check_given(definitions: dict[str, Definition], pattern: Pattern, blocks: dict[str, str]) -> None:
    """Refuses what layers of a kind are made or called with, and no fragment takes.

    Args:
        definitions: threaded.
        blocks: kind of layer -> the name of its class.
    """
    for kind in pattern.kinds.values():
        for key, given, method in (("init", kind.init, "__init__"), ("call", kind.call, "__call__")):
            block = definitions.get(blocks[kind.name])
            members = walk(parse(block.text.text).module) if given and block else ()
            functions = [node for node in members if isinstance(node, FUNCTIONS) and node.name == method]
            taken = {parameter.arg for function in functions for parameter in parameters(function)}
            if block and (missing := [name for name in given if name not in taken]):
                message = f"layers of the kind {kind.name!r} are given {missing[0]!r}, which no selected fragment takes"
                raise LoomError(message, str(kind.lines[key]), "Select a fragment that takes it, or remove it.")


@dataclass(frozen=True)
class _Place:
    """Where a text speaks of layers: a loop over groups or a period, or all that it says of the last layer.

    Attributes:
        member: `groups`, `period` or `last`.
        function: id of the function or method.
        config: how the config is called there.
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
class _Copy:
    """One of the copies of what is said of layers.

    Attributes:
        members: member of a layer or a group -> what it is here.
        init, call: what a layer is made and called with beyond what all layers are.
        prefix: of the functions that the copy defines.
    """

    members: dict[str, str]
    init: dict[str, str]
    call: dict[str, str]
    origin: Origin
    prefix: str = ""


def _first(source: TracedTree) -> _Place | None:
    """The first place that is not written out yet."""
    words = unbound(WORD, source)
    for statement in source.statements if words else ():
        prefix = f"{statement.name}." if isinstance(statement, ast.ClassDef) else ""
        for function in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            inner = scopes_of(source.tree).inner.get(function)
            config = "config" if inner and "config" in inner.bound else "self.config"
            for node in walk(function):
                said = node.iter if isinstance(node, ast.For) else node
                if isinstance(said, ast.Attribute) and said.value in words and isinstance(function, FUNCTIONS):
                    is_loop = isinstance(node, ast.For) and isinstance(node.target, ast.Name) and not node.orelse
                    fits = said.attr != "last" if is_loop else said is node and said.attr == "last"
                    if not fits:
                        remedy = f"Write `for group in {WORD}.groups:`, `for layer in {WORD}.period:` or `{WORD}.last`."
                        raise LoomError(f"{WORD}.{said.attr} cannot be read here", source.where(node), remedy)
                    return _Place(said.attr, node, prefix + function.name, config, source)
    if words:
        place, remedy = source.where(next(iter(words))), "Say one of its members, in a function or a method."
        raise LoomError(f"{WORD} cannot be read here", place, remedy)
    return None


def _copies(place: _Place, pattern: Pattern, blocks: dict[str, str]) -> list[_Copy]:
    if place.member == "last":
        return [_layer(pattern.last, "layer", blocks)]
    if place.member == "groups":
        return [_group(group, place.config, pattern, blocks) for group in pattern.groups]
    (group,) = (group for group in pattern.groups if group.period > 1)
    layers = zip(group.attributes, group.pattern, strict=True)
    return [_layer(pattern.kinds[name], attribute, blocks) for attribute, name in layers]


def _layer(kind: Kind, attribute: str, blocks: dict[str, str]) -> _Copy:
    members = {"Block": blocks[kind.name], "module": f"self.{attribute}"}
    return _Copy(members, kind.init, kind.call, kind.origin or Origin("", 1))


def _group(group: Group, config: str, pattern: Pattern, blocks: dict[str, str]) -> _Copy:
    kind = pattern.kinds[group.pattern[0]] if group.period == 1 else Kind("")
    members = {
        "Block": blocks[kind.name] if group.period == 1 else "Period",
        "count": re.sub(r"\bconfig\b", config, group.count),
        "stack": f"self.{group.name}_layers" if group.name else "self.layers",
    }
    return _Copy(members, kind.init, kind.call, kind.origin or group.origin or Origin("", 1), group.name)


def _repeated(place: _Place, copies: list[_Copy]) -> tuple[Traced, list[tuple[Origin, str]]]:
    """The text with copies in place of what it says of layers, and the names that these read, with why."""
    source, loop = place.source, place.node
    if not isinstance(loop, ast.For):
        (copy,) = copies
        words = unbound(WORD, source)
        said = {n for n in walk(source.module) if isinstance(n, ast.Attribute) and n.value in words}
        edits, reads = _edits(source, {n for n in said if n.attr == "last"}, copy)
        return source.traced.edited(edits), [(copy.origin, name) for name in reads]
    block, written, every = TracedTree(source.traced[slice(*source.lines(loop.body[0], loop.body[-1]))]), [], []
    nodes = unbound(dotted_name(loop.target), block)
    for copy in copies:
        edits, reads = _edits(block, nodes, copy)
        written.append(reindent(block.traced.edited(edits), source.indent(loop)))
        every += [(copy.origin, name) for name in reads]
    return source.traced.edited([Edit(*source.without_comments(loop), Traced.join(written))]), every


def _edits(source: TracedTree, nodes: Collection[ast.AST], copy: _Copy) -> tuple[list[Edit], list[str]]:
    """What changes in one copy, and the names that its layers are given."""
    edits, reads = member_edits(source, source.module, nodes, copy.members), list[str]()
    scopes = {found.node: found.scope for found in scopes_of(source.tree).occurrences}
    names: dict[ast.AST, str] = {  # function -> its parameter that is a layer
        node: parameter.arg
        for node in walk(source.module)
        if isinstance(node, FUNCTIONS)
        for parameter in parameters(node)
        if isinstance(parameter.annotation, ast.Attribute) and parameter.annotation.value in nodes
    }
    for node in (node for node in walk(source.module) if isinstance(node, ast.Call)):
        given: dict[str, str] = {}
        if isinstance(node.func, ast.Attribute) and node.func.value in nodes:
            given = copy.init if node.func.attr == "Block" else copy.call
        elif isinstance(node.func, ast.Name):
            scope = scopes[node.func].binder(node.func.id)
            given = copy.call if scope and names.get(scope.node) == node.func.id else {}
        if given:
            reads += [n.id for text in given.values() for n in walk(parse(text).module) if isinstance(n, ast.Name)]
            more = ", ".join(f"{name}={text}" for name, text in given.items())
            last = max((source.span(argument)[1] for argument in (*node.args, *node.keywords)), default=0)
            closing = re.compile(r"[\s)]*\)").match(source.text, last, source.span(node)[1] - 1)  # of the argument
            at = (closing.end() if closing else last) or source.span(node)[1] - 1
            edits.append(Edit(at, at, Traced.insert(f", {more}" if last else more, copy.origin)))
    functions = {statement.name for statement in source.statements if isinstance(statement, FUNCTIONS)}
    if copy.prefix:
        edits += rename(source, lambda name: f"{copy.prefix}_{name}" if name in functions else None)
    return edits, reads
