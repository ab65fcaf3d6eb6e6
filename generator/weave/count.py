"""Counts layers: replaces expressions over all layers by expressions over `config`.

before                                              after, where 3 of the layers have a window
    layers.sum(lambda layer: f(layer.window))           3 * f(config.window) + (config.layers - 3) * f(EVERYTHING)
    layers.stacked(lambda group: f(group.window))       (f(config.window), f(config.window), ..., f(EVERYTHING))

All of these are over the layers that have the fragment, as are `layers.count`, `layers.scanned` (without further ones)
and `layers.numbers`. `layers.stacked` is an expression for each stack of such layers, in the structure that scans take
apart; `layers.stacks` maps the path of each stack of the model to the numbers of its layers.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from generator.code.bindings import as_operand, scopes_of
from generator.code.edits import Edits
from generator.code.traced import Traced
from generator.code.tree import TracedTree, children, dotted_name, parameters
from generator.errors import LoomError, nearest
from generator.recipe.pattern import Kind, Pattern, parenthesize

WORD = "layers"
_GIVE_IT = 'Write init = {{ {} = "..." }} in the architecture, under [kinds.KIND] for each kind in its [[layers]].'
_PLACES = "groups", "period", "last"  # unrolled later, when the kinds of layer are known
_CALLED = {"sum": "layer", "stacked": "group"}
_PLAIN = "count", "scanned", "stacks", "numbers"
# parents whose children need no parentheses
_OPEN = (ast.Lambda, ast.NamedExpr, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.FormattedValue)
_LISTING = (ast.Call, ast.Compare)


def count_layers(text: Traced, fragment: str, pattern: Pattern) -> Traced:
    """Replaces the expressions that count layers.

    Args:
        text: whole statements of a fragment, indented or not.
        fragment: its name.
    """
    if f"{WORD}." not in text.text:
        return text
    edits = Edits(source := TracedTree(text))
    words = free_occurrences(WORD, source)

    def visit(node: ast.AST, parent: ast.AST) -> None:
        member = node.func if isinstance(node, ast.Call) else node
        if not isinstance(member, ast.Attribute) or member.value not in words:
            for child in children(node):
                visit(child, node)
        elif member.attr not in _PLACES:
            counted = _count_expression(node, member.attr, source, pattern, pattern.kinds_with(fragment))
            edits.replace(node, _fit_in_place(counted, node, parent))

    visit(source.module, source.module)
    return edits.made()


def free_occurrences(name: str, source: TracedTree) -> set[ast.AST]:
    """Returns the nodes that read a free name."""
    return {use.node for use in scopes_of(source.tree).occurrences if use.name == name and not use.binder}


def _count_expression(node: ast.AST, member: str, source: TracedTree, pattern: Pattern, having: list[Kind]) -> str:
    if member in _CALLED and isinstance(node, ast.Call):
        if member == "sum":
            return _sum_over_layers({kind.name: _apply_lambda(node, kind.init, source) for kind in having}, pattern)
        stacks, names, numbers = [], {kind.name for kind in having}, iter(pattern.numbers().values())
        for group in pattern.groups:
            members = [
                (it, {"count": group.count, "numbers": of_it})
                for it, of_it in zip(group.pattern, numbers, strict=False)
            ]
            kinds = [pattern.kinds[name].init | own for name, own in members if name in names]
            each = [_apply_lambda(node, members, source) for members in kinds]
            alike = f"tuple({each[0]} for _ in range({len(each)}))" if each else ""
            written = alike if len(set(each)) == 1 else f"({', '.join(each)})"
            stacks += [each[0] if len(each) == 1 else written] if each else []
        return stacks[0] if len(stacks) == 1 else f"({', '.join(stacks)})"
    if member not in _PLAIN or isinstance(node, ast.Call):
        calls = [f"{WORD}.{name}(lambda {of}: ...)" for name, of in _CALLED.items()]
        known = ", ".join([*calls, *(f"{WORD}.{name}" for name in (*_PLAIN, *_PLACES))])
        remedy = f"{nearest(member, (*_CALLED, *_PLAIN, *_PLACES))} There are {known}."
        raise LoomError(f"{WORD}.{member} cannot be read", source.where(node), remedy)
    if member == "count":
        return _sum_over_layers({kind.name: "1" for kind in having}, pattern)
    if member == "scanned":
        return pattern.count_of([kind.name for kind in having], further=False)
    if member == "numbers":
        return pattern.numbers_of([kind.name for kind in having])
    return "{" + ", ".join(f'"{path}": {numbers}' for path, numbers in pattern.numbers().items()) + "}"


def _sum_over_layers(summands: dict[str, str], pattern: Pattern) -> str:
    """Returns the sum over all layers, from the summand of each kind of layer."""
    kinds: dict[str, list[str]] = {}  # summand -> the kinds that have it
    for kind, summand in summands.items():
        kinds.setdefault(summand, []).append(kind)
    terms = []
    for summand, names in kinds.items():
        amount = pattern.count_of(names)
        product = parenthesize(summand) if amount == "1" else f"{parenthesize(amount)} * {parenthesize(summand)}"
        terms.append(amount if summand == "1" else product)
    total = " + ".join(terms)
    return f"({total})" if len(terms) > 1 or total != parenthesize(total) else total


def _apply_lambda(call: ast.Call, members: dict[str, str], source: TracedTree) -> str:
    """Returns the body of the lambda in a call, with expressions in place of the members of its parameter."""
    match call:
        case ast.Call(args=[ast.Lambda(args=ast.arguments(defaults=[])) as function], keywords=[]) if (
            len(parameters(function)) == 1
        ):
            inner, edits = scopes_of(source.tree).inner[function], Edits(source)
            nodes = {use.node for use in scopes_of(source.tree).occurrences if use.binder is inner}
            replace_members(edits, function.body, nodes, members, _GIVE_IT)
            return edits.text(function.body)
    word = dotted_name(call.func)
    remedy = f"Write {word}(lambda {_CALLED[word.rpartition('.')[2]]}: ...)."
    raise LoomError(f"{word}() takes a function of one argument", source.where(call), remedy)


def replace_members(
    edits: Edits, root: ast.AST, nodes: Collection[ast.AST], members: Mapping[str, str], advice: str = ""
) -> None:
    """Replaces the members of a layer or a group by expressions.

    Args:
        edits: of the text, to which the changes are added.
        nodes: the names of the layer or group, below the root.
        members: name -> expression.
        advice: a remedy for a missing member, with {} for its name.
    """
    source = edits.source

    def visit(node: ast.AST, parent: ast.AST) -> None:
        member = node if isinstance(node, ast.Attribute) and node.value in nodes else None
        if member and member.attr in members:
            edits.replace(member, _fit_in_place(members[member.attr], node, parent))
        elif member or node in nodes:
            if advice and member:
                message = f"{dotted_name(node)} is read here, and some kind of layer is made without {member.attr!r}"
                raise LoomError(message, source.where(node), advice.format(member.attr))
            known = ", ".join(f"{dotted_name(member.value if member else node)}.{name}" for name in members)
            remedy = f"Read one of {known}." if known else "Read an argument of their class, as layer.window."
            raise LoomError(f"{dotted_name(node)} cannot be read here", source.where(node), remedy)
        else:
            for child in children(node):
                visit(child, node)

    visit(root, source.module)


def _fit_in_place(text: str, node: ast.AST, parent: ast.AST) -> str:
    """Returns an expression that replaces a node: in parentheses where its new parent needs them."""
    own = [getattr(parent, "slice", None)]
    if isinstance(parent, _LISTING):
        own += [*getattr(parent, "args", ()), *getattr(parent, "comparators", ())]
    if not isinstance(parent, ast.expr) or isinstance(parent, _OPEN) or node in own:
        return text
    return as_operand(text)
