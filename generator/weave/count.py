"""Counts layers: what a fragment says of all of them as one expression over `config`.

before                                              after, where 3 of the layers have a window
    layers.sum(lambda layer: f(layer.window))           3 * f(config.window) + (config.layers - 3) * f(EVERYTHING)
    layers.stacked(lambda group: f(group.window))       (f(config.window), f(config.window), ..., f(EVERYTHING))

`layers.sum(...)` and `layers.count` are over the layers that have the fragment, and `layers.numbers` are theirs;
`layers.stacked(...)` is an expression for each stack of layers, in the structure in which scans take it apart, and
`layers.stacks` says which layers are stacked where.
"""

from __future__ import annotations

import libcst as cst

from generator.code import syntax
from generator.code.names import as_block, in_place, unblocked
from generator.code.syntax import Source
from generator.code.traced import Edit, Traced
from generator.errors import LoomError, nearest
from generator.recipe.pattern import Kind, Pattern, factor
from generator.weave.members import member_edits, standing_for

WORD = "layers"
GIVE_IT = 'Write init = {{ {} = "..." }} in the architecture, under [kinds.KIND] for each kind in its [[layers]].'
LATER = "groups", "period", "last"  # members that are written out when the kinds of layer are known
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
    source = as_block(text) if text.text.startswith(" ") else Source(text)
    words, having, edits = standing_for(WORD, source), pattern.having(fragment), []

    def visit(node: cst.CSTNode, parent: cst.CSTNode | None) -> None:
        member = node.func if isinstance(node, cst.Call) else node
        if isinstance(member, cst.Attribute) and member.value in words:
            if member.attr.value not in LATER:
                start, end = source.span(node)
                new = in_place(_counted(node, member.attr.value, source, pattern, having), parent)
                edits.append(Edit(start, end, Traced.insert(new, source.traced.origin_at(start))))
        else:
            for child in syntax.children(node):
                visit(child, node)

    visit(source.module, None)
    woven = source.traced.edited(edits)
    return unblocked(woven) if text.text.startswith(" ") else woven


def _counted(node: cst.CSTNode, member: str, source: Source, pattern: Pattern, having: list[Kind]) -> str:
    if member in _CALLED and isinstance(node, cst.Call):
        if member == "sum":
            return _sum({kind.name: _applied(node, kind.init, source, GIVE_IT) for kind in having}, pattern)
        stacks = []
        for group in pattern.groups:
            kinds = [pattern.kinds[name].init | {"count": group.count} for name in group.pattern]
            each = [_applied(node, members, source, GIVE_IT) for members in kinds]
            alike = f"tuple({each[0]} for _ in range({group.period}))"
            written = alike if len(set(each)) == 1 else f"({', '.join(each)})"
            stacks.append(each[0] if group.period == 1 else written)
        return stacks[0] if len(stacks) == 1 else f"({', '.join(stacks)})"
    if member not in _PLAIN or isinstance(node, cst.Call):
        calls = [f"{WORD}.{name}(lambda {of}: ...)" for name, of in _CALLED.items()]
        known = ", ".join([*calls, *(f"{WORD}.{name}" for name in (*_PLAIN, *LATER))])
        remedy = f"{nearest(member, (*_CALLED, *_PLAIN, *LATER))} There are {known}."
        raise LoomError(f"{WORD}.{member} cannot be read", source.where(node), remedy)
    if member == "count":
        return _sum({kind.name: "1" for kind in having}, pattern)
    if member == "numbers":
        return pattern.numbers_of(kind.name for kind in having)
    return "{" + ", ".join(f'"{path}": {numbers}' for path, numbers in pattern.numbers().items()) + "}"


def _sum(summands: dict[str, str], pattern: Pattern) -> str:
    """The sum over all layers of what a layer of each kind adds."""
    kinds: dict[str, list[str]] = {}  # what a layer adds -> the kinds that add it
    for kind, summand in summands.items():
        kinds.setdefault(summand, []).append(kind)
    terms = []
    for summand, names in kinds.items():
        amount = pattern.amount(names)
        terms.append(amount if summand == "1" else f"{factor(amount)} * {factor(summand)}")
    joined = " + ".join(terms)
    return f"({joined})" if len(terms) > 1 or joined != factor(joined) else joined


def _applied(call: cst.Call, members: dict[str, str], source: Source, advice: str = "") -> str:
    """The body of the lambda that a call is given, with expressions in place of the members of its parameter."""
    function = call.args[0].value if len(call.args) == 1 and not call.args[0].star else None
    parameters = [*function.params.params, *function.params.kwonly_params] if isinstance(function, cst.Lambda) else []
    if not isinstance(function, cst.Lambda) or len(parameters) != 1 or parameters[0].default:
        what = source.code(call.func)
        remedy = f"Write {what}(lambda {_CALLED[what.rpartition('.')[2]]}: ...)."
        raise LoomError(f"{what}() takes a function of one argument", source.where(call), remedy)
    start, end = source.span(function.body)
    origin = source.traced.origin_at(start)
    # as an argument, for parentheses around a whole body would belong to it
    body = Source(Traced.insert("_(", origin) + source.traced[start:end] + Traced.insert(")\n", origin))
    edits = member_edits(body, standing_for(parameters[0].name.value, body), members, advice)
    return body.traced.edited(edits).text.strip()[2:-1]
