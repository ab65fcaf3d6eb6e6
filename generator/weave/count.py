"""Counts layers: what a fragment says of all of them as one expression over `config`.

before                                              after, where 3 of the layers have a window
    layers.sum(lambda layer: f(layer.window))           3 * f(config.window) + (config.layers - 3) * f(EVERYTHING)
    layers.stacked(lambda group: f(group.window))       (f(config.window), f(config.window), ..., f(EVERYTHING))

`layers.sum(...)` and `layers.count` are over the layers that have the fragment, and `layers.numbers` are theirs;
`layers.stacked(...)` is an expression for each stack of layers, in the structure in which scans take it apart, and
`layers.stacks` says which layers are stacked where.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from generator.code.bindings import in_place, scopes_of
from generator.code.traced import Edit, Traced
from generator.code.tree import TracedTree, dotted_name, parameters
from generator.errors import LoomError, nearest
from generator.recipe.pattern import Kind, Pattern, parenthesize

WORD = "layers"
_GIVE_IT = 'Write init = {{ {} = "..." }} in the architecture, under [kinds.KIND] for each kind in its [[layers]].'
_PLACES = "groups", "period", "last"  # members that are written out when the kinds of layer are known
_CALLED = {"sum": "layer", "stacked": "group"}
_PLAIN = "count", "stacks", "numbers"


def count_layers(text: Traced, fragment: str, pattern: Pattern) -> Traced:
    """Replaces the expressions that count layers.

    Args:
        text: whole statements of a fragment, indented or not.
        fragment: its name.
    """
    if f"{WORD}." not in text.text:
        return text
    source, edits = TracedTree(text), list[Edit]()
    words = unbound(WORD, source)

    def visit(node: ast.AST, parent: ast.AST) -> None:
        member = node.func if isinstance(node, ast.Call) else node
        if not isinstance(member, ast.Attribute) or member.value not in words:
            for child in ast.iter_child_nodes(node):
                visit(child, node)
        elif member.attr not in _PLACES:
            start, end = source.span(node)
            counted = _counted(node, member.attr, source, pattern, pattern.kinds_with(fragment))
            edits.append(Edit(start, end, source.inserted(in_place(counted, node, parent), start)))

    visit(source.module, source.module)
    return text.edited(edits)


def unbound(name: str, source: TracedTree) -> set[ast.AST]:
    """Where a text reads a name that it does not bind itself."""
    return {found.node for found in scopes_of(source.tree).occurrences if found.name == name and not found.binder}


def _counted(node: ast.AST, member: str, source: TracedTree, pattern: Pattern, having: list[Kind]) -> str:
    if member in _CALLED and isinstance(node, ast.Call):
        if member == "sum":
            return _sum({kind.name: _applied(node, kind.init, source) for kind in having}, pattern)
        stacks = []
        for group in pattern.groups:
            kinds = [pattern.kinds[name].init | {"count": group.count} for name in group.pattern]
            each = [_applied(node, members, source) for members in kinds]
            alike = f"tuple({each[0]} for _ in range({group.period}))"
            written = alike if len(set(each)) == 1 else f"({', '.join(each)})"
            stacks.append(each[0] if group.period == 1 else written)
        return stacks[0] if len(stacks) == 1 else f"({', '.join(stacks)})"
    if member not in _PLAIN or isinstance(node, ast.Call):
        calls = [f"{WORD}.{name}(lambda {of}: ...)" for name, of in _CALLED.items()]
        known = ", ".join([*calls, *(f"{WORD}.{name}" for name in (*_PLAIN, *_PLACES))])
        remedy = f"{nearest(member, (*_CALLED, *_PLAIN, *_PLACES))} There are {known}."
        raise LoomError(f"{WORD}.{member} cannot be read", source.where(node), remedy)
    if member == "count":
        return _sum({kind.name: "1" for kind in having}, pattern)
    if member == "numbers":
        return pattern.numbers_of([kind.name for kind in having])
    return "{" + ", ".join(f'"{path}": {numbers}' for path, numbers in pattern.numbers().items()) + "}"


def _sum(summands: dict[str, str], pattern: Pattern) -> str:
    """The sum over all layers of what a layer of each kind adds."""
    kinds: dict[str, list[str]] = {}  # what a layer adds -> the kinds that add it
    for kind, summand in summands.items():
        kinds.setdefault(summand, []).append(kind)
    terms = []
    for summand, names in kinds.items():
        amount = pattern.count_of(names)
        terms.append(amount if summand == "1" else f"{parenthesize(amount)} * {parenthesize(summand)}")
    joined = " + ".join(terms)
    return f"({joined})" if len(terms) > 1 or joined != parenthesize(joined) else joined


def _applied(call: ast.Call, members: dict[str, str], source: TracedTree) -> str:
    """The body of the lambda that a call is given, with expressions in place of the members of its parameter."""
    match call:
        case ast.Call(args=[ast.Lambda(args=ast.arguments(defaults=[])) as function], keywords=[]) if (
            len(parameters(function)) == 1
        ):
            inner, (start, end) = scopes_of(source.tree).inner[function], source.with_parentheses(function.body)
            nodes = {found.node for found in scopes_of(source.tree).occurrences if found.binder is inner}
            edits = member_edits(source, function.body, nodes, members, _GIVE_IT)
            moved = [Edit(one - start, other - start, new) for one, other, new in edits]
            return source.traced[start:end].edited(moved).text
    word = dotted_name(call.func)
    remedy = f"Write {word}(lambda {_CALLED[word.rpartition('.')[2]]}: ...)."
    raise LoomError(f"{word}() takes a function of one argument", source.where(call), remedy)


def member_edits(
    source: TracedTree, root: ast.AST, nodes: Collection[ast.AST], members: Mapping[str, str], advice: str = ""
) -> list[Edit]:
    """Edits that put expressions in place of the members of what stands for a layer or a group.

    Args:
        nodes: what stands for it, below the root.
        members: name -> expression.
        advice: what gives a member that is missing, with {} for its name.
    """
    edits: list[Edit] = []

    def visit(node: ast.AST, parent: ast.AST) -> None:
        member = node if isinstance(node, ast.Attribute) and node.value in nodes else None
        if member and member.attr in members:
            start, end = source.span(member)
            edits.append(Edit(start, end, source.inserted(in_place(members[member.attr], node, parent), start)))
        elif member or node in nodes:
            if advice and member:
                message = f"{dotted_name(node)} is read here, and some kind of layer is made without {member.attr!r}"
                raise LoomError(message, source.where(node), advice.format(member.attr))
            known = ", ".join(f"{dotted_name(member.value if member else node)}.{name}" for name in members)
            remedy = f"Say one of {known}." if known else "Say what layers are made with, as layer.window."
            raise LoomError(f"{dotted_name(node)} cannot be read here", source.where(node), remedy)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, node)

    visit(root, source.module)
    return edits
