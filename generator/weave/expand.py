"""Writes out what a host says once of all layers, by the pattern in which the architecture repeats them.

before, in model/period                      after, for pattern = ["local", "full"]
    for layer in layers.period:                  x = self.local(x)
        x = layer.module(x)                      x = self.full(x, angles=global_angles)

A loop over `layers.groups` is repeated for each group of layers that is scanned, one over `layers.period` for each
layer of the pattern of a group; `layers.last` is a layer like the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import libcst as cst

from generator.code import syntax
from generator.code.names import as_block, unblocked, variables
from generator.code.scopes import scopes_of
from generator.code.syntax import Source
from generator.code.traced import Edit, Origin, Traced
from generator.errors import LoomError
from generator.language.parts import Definition
from generator.recipe.pattern import Group, Kind, Pattern
from generator.weave.adapt import Need
from generator.weave.count import WORD
from generator.weave.members import member_edits, standing_for


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
        while place := _first(Source(woven[key].text)):
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


@dataclass(frozen=True)
class _Place:
    """Where a text speaks of layers: a loop over groups or a period, or all that it says of the last layer.

    Attributes:
        member: `groups`, `period` or `last`.
        function: id of the function or method.
        config: how the config is called there.
    """

    member: str
    node: cst.CSTNode
    function: str
    config: str
    source: Source

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


def _first(source: Source) -> _Place | None:
    """The first place that is not written out yet."""
    words = standing_for(WORD, source) if f"{WORD}." in source.text else set()
    for statement in source.module.body if words else ():
        members = syntax.body(statement) if isinstance(statement, cst.ClassDef) else [statement]
        prefix = f"{statement.name.value}." if isinstance(statement, cst.ClassDef) else ""
        for function in members:
            inner = [scope for _, scope in scopes_of(source.module).occurrences if scope.node is function]
            config = "config" if inner and "config" in inner[0].bound else "self.config"
            for node in syntax.walk(function):
                said = node.iter if isinstance(node, cst.For) else node
                if isinstance(said, cst.Attribute) and said.value in words and isinstance(function, cst.FunctionDef):
                    member, is_loop = said.attr.value, said is not node
                    if is_loop != (member != "last") or (is_loop and not _is_plain(node)):
                        remedy = f"Write `for group in {WORD}.groups:`, `for layer in {WORD}.period:` or `{WORD}.last`."
                        raise LoomError(f"{WORD}.{member} cannot be read here", source.where(node), remedy)
                    name = prefix + function.name.value
                    return _Place(member, node, name, config, source)
    if words:
        place, remedy = source.where(next(iter(words))), "Say one of its members, in a function or a method."
        raise LoomError(f"{WORD} cannot be read here", place, remedy)
    return None


def _is_plain(loop: cst.CSTNode) -> bool:
    """Whether a loop has one name for its target, and no `else`."""
    return isinstance(loop, cst.For) and isinstance(loop.target, cst.Name) and not loop.orelse


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
    count = Source(Traced.copy(group.count, ""))
    edits = [Edit(*count.span(node), Traced.copy(config, "")) for node in standing_for("config", count)]
    members = {
        "Block": blocks[kind.name] if group.period == 1 else "Period",
        "count": count.traced.edited(edits).text,
        "stack": f"self.{group.name}_layers" if group.name else "self.layers",
    }
    return _Copy(members, kind.init, kind.call, kind.origin or group.origin or Origin("", 1), group.name)


def _repeated(place: _Place, copies: list[_Copy]) -> tuple[Traced, list[tuple[Origin, str]]]:
    """The text with copies in place of what it says of layers, and the names that these read, with why."""
    source, loop = place.source, place.node
    if not isinstance(loop, cst.For):
        (copy,) = copies
        words = standing_for(WORD, source)
        said = {n for n in syntax.walk(source.module) if isinstance(n, cst.Attribute) and n.value in words}
        edits, reads = _edits(source, {n for n in said if n.attr.value == "last"}, copy)
        return source.traced.edited(edits), [(copy.origin, name) for name in reads]
    body = syntax.body(loop)
    inside = source.traced[source.lines(body[0])[0] : source.lines(body[-1])[1]]
    start, end = source.text.rfind("\n", 0, source.span(loop)[0]) + 1, source.lines(loop)[1]
    block, written, every = as_block(inside), [], []
    nodes = standing_for(cst.ensure_type(loop.target, cst.Name).value, block)
    for copy in copies:
        edits, reads = _edits(block, nodes, copy)
        written.append(syntax.reindent(unblocked(block.traced.edited(edits)), source.indent(loop)))
        every += [(copy.origin, name) for name in reads]
    return source.traced.edited([Edit(start, end, Traced.join(written))]), every


def _edits(source: Source, nodes: Collection[cst.CSTNode], copy: _Copy) -> tuple[list[Edit], list[str]]:
    """What changes in one copy, and the names that its layers are given."""
    edits, reads = member_edits(source, nodes, copy.members), []
    scopes = dict(scopes_of(source.module).occurrences)
    layers = {}  # function -> its parameter that is a layer
    for node in syntax.walk(source.module):
        for parameter in syntax.parameters(node) if isinstance(node, cst.FunctionDef) else ():
            kind = parameter.annotation.annotation if parameter.annotation else None
            if isinstance(kind, cst.Attribute) and kind.value in nodes:
                layers[node] = parameter.name.value
    for node in syntax.walk(source.module):
        if not isinstance(node, cst.Call):
            continue
        given: dict[str, str] = {}
        if isinstance(node.func, cst.Attribute) and node.func.value in nodes:
            given = copy.init if node.func.attr.value == "Block" else copy.call
        elif isinstance(node.func, cst.Name):
            scope = scopes[node.func].binder(node.func.value)
            given = copy.call if scope and layers.get(scope.node) == node.func.value else {}
        if given:
            reads += [n.value for text in given.values() for n in variables(Source(Traced.copy(text, "")).module)]
            more = ", ".join(f"{name}={text}" for name, text in given.items())
            at = source.span(node.args[-1].value)[1] if node.args else source.span(node)[1] - 1
            edits.append(Edit(at, at, Traced.insert(f", {more}" if node.args else more, copy.origin)))
    return edits + _named(source, copy), reads


def _named(source: Source, copy: _Copy) -> list[Edit]:
    """Edits that name the functions of a copy after it."""
    if not copy.prefix:
        return []
    scopes, edits, (block,) = scopes_of(source.module), [], source.module.body
    functions = {s.name.value for s in syntax.body(block) if isinstance(s, cst.FunctionDef)}
    for name, scope in scopes.occurrences:
        if name.value in functions and scope.binder(name.value) is scopes.module:
            start = source.span(name)[0]
            edits.append(Edit(start, start, Traced.insert(f"{copy.prefix}_", source.traced.origin_at(start))))
    return edits
