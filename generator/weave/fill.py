"""The fill operator: `setting("name")` becomes a literal, and a branch on a setting is decided.

before                                      after, for an architecture with gated = true
    if setting("gated"):                        h = jax.nn.silu(self.gate(x)) * self.up(x)
        h = jax.nn.silu(self.gate(x)) * self.up(x)
    else:
        h = jax.nn.gelu(self.up(x))
"""

from __future__ import annotations

import ast

from generator.code.literals import literal
from generator.code.traced import Edit, Traced
from generator.code.tree import TracedTree, called_name, placeholder, reindent, walk
from generator.errors import LoomError, nearest
from generator.recipe.expressions import evaluate

_ARGUMENTS = "==, !=, <, <=, >, >=, in, not in, not, and, or"


def fill(text: Traced, settings: dict[str, object]) -> Traced:
    """Fills every setting in whole statements.

    Args:
        text: Python statements, indented or not.
        settings: name -> a string, number, boolean or list of them.
    """
    edits = _edits((source := TracedTree(text)).module, source, settings) if "setting(" in text.text else []
    return fill(text.edited(edits), settings) if edits else text


def _edits(node: ast.AST, source: TracedTree, settings: dict[str, object]) -> list[Edit]:
    """Outermost edits only: what stands inside a decided branch is filled in the next round."""
    if isinstance(node, ast.If) and _is_decided(node.test):
        return [_decide(node, source, settings)]
    if isinstance(node, ast.IfExp) and _is_decided(node.test):
        chosen = node.body if _holds(node.test, source, settings) else node.orelse
        return [Edit(*source.span(node), source.traced[slice(*source.with_parentheses(chosen))])]
    if isinstance(node, ast.FormattedValue) and (edit := _number(node, source, settings)):
        return [edit]
    if isinstance(node, ast.Call) and called_name(node) == "setting":
        return [_literal(node, source, settings)]
    return [edit for child in ast.iter_child_nodes(node) for edit in _edits(child, source, settings)]


def _literal(call: ast.Call, source: TracedTree, settings: dict[str, object]) -> Edit:
    start, end = source.span(call)
    quote = "'" if "'" in source.code(call) else '"'  # as the name has it: it may stand in an f-string
    text = literal(settings[_name(call, source, settings)], source.where(call), quote)
    # `setting("n").real` needs (3), and `setting("n") ** 2` needs (-3)
    alone = text[0] != "-" and not (text[0].isdigit() and source.text[end : end + 1] == ".")
    return Edit(start, end, source.inserted(text if alone else f"({text})", start))


def _number(node: ast.FormattedValue, source: TracedTree, settings: dict[str, object]) -> Edit | None:
    """The edit of `{setting("n")}` in an f-string, where that is a number as it stands."""
    if called_name(node.value) != "setting" or not isinstance(node.value, ast.Call):
        return None
    value = settings[_name(node.value, source, settings)]
    start, end = source.span(node.value)
    start, close = source.text.rfind("{", 0, start), source.text.find("}", end)
    if source.text[end:close].strip() or not isinstance(value, int):
        return None
    return Edit(start, close + 1, source.inserted(str(value), start))


def _name(call: ast.Call, source: TracedTree, settings: dict[str, object]) -> str:
    """The setting that a call asks for; there is one of that name."""
    match call:
        case ast.Call(args=[ast.Constant(str(name))], keywords=[]):
            if name in settings:
                return name
            remedy = f"Give it under [settings] in the architecture or the target. {nearest(name, settings)}"
            raise LoomError(f"no selected architecture or target has the setting {name!r}", source.where(call), remedy)
    raise LoomError("setting() takes a name as a string", source.where(call), 'Write setting("NAME").')


def _is_decided(test: ast.expr) -> bool:
    """Whether a test is over settings and literals alone."""
    return {node.id for node in walk(test) if isinstance(node, ast.Name)} == {"setting"}


def _decide(node: ast.If, source: TracedTree, settings: dict[str, object]) -> Edit:
    """The statements of the branch that holds, in place of the whole statement."""
    first, (start, end) = source.span(node)[0], source.without_comments(node)
    is_elif, block = source.text.startswith("elif", first), list[ast.stmt]()
    while not block:
        if _holds(node.test, source, settings):
            block = node.body
            continue
        match node.orelse:
            case [ast.If() as other] if source.text.startswith("elif", at := source.span(other)[0]):
                if _is_decided(other.test):
                    node = other
                elif is_elif:  # the other is decided when the package runs
                    return Edit(start, source.text.rfind("\n", 0, at) + 1, Traced())
                else:
                    return Edit(first, at + len("elif"), source.inserted("if", at))
            case []:
                return Edit(start, end, Traced() if is_elif else placeholder(node, source))
            case block:
                pass
    inside = source.traced[slice(*source.lines(block[0], block[-1]))]
    if is_elif:
        return Edit(start, end, source.inserted(" " * source.indent(node) + "else:\n", first) + inside)
    return Edit(start, end, reindent(inside, source.indent(node)))


def _holds(test: ast.expr, source: TracedTree, settings: dict[str, object]) -> bool:
    """Evaluates a test over settings and literals."""
    start, end = source.span(test)
    edits = [Edit(one - start, other - start, new) for one, other, new in _edits(test, source, settings)]
    try:
        return bool(evaluate(source.traced[start:end].edited(edits).text, {}))
    except (ValueError, TypeError, SyntaxError):
        remedy = f"Use {_ARGUMENTS} over settings and literals of one type."
        raise LoomError("this test of a setting cannot be decided while weaving", source.where(test), remedy) from None
