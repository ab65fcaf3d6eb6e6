"""The fill operator: `setting("name")` becomes a literal, and a branch on a setting is decided.

before                                      after, for an architecture with gated = true
    if setting("gated"):                        h = jax.nn.silu(self.gate(x)) * self.up(x)
        h = jax.nn.silu(self.gate(x)) * self.up(x)
    else:
        h = jax.nn.gelu(self.up(x))
"""

from __future__ import annotations

import ast
from dataclasses import replace

from generator.code.literals import literal
from generator.code.traced import Edit, Traced
from generator.code.tree import TracedTree, called_name, children, placeholder, reindent, walk
from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment
from generator.language.parts import Provider
from generator.recipe.expressions import evaluate
from generator.recipe.recipe import Recipe
from generator.weave.count import count_layers

_ARGUMENTS = "==, !=, <, <=, >, >=, in, not in, not, and, or"


def fill_fragment(fragment: Fragment, recipe: Recipe) -> Fragment:
    """Returns a fragment with its settings filled and its layers counted."""

    def filled(text: Traced) -> Traced:
        return count_layers(fill(text, recipe.settings), fragment.name, recipe.pattern)

    def result(provider: Provider) -> Traced:  # an expression, which is filled as a statement
        opening = Traced.insert("_ = ", provider.origin)
        return filled(opening + provider.result)[len(opening.text) :]

    return replace(
        fragment,
        definitions=tuple(replace(d, text=filled(d.text)) for d in fragment.definitions),
        splices=tuple(replace(s, body=filled(s.body)) for s in fragment.splices),
        providers=tuple(replace(p, body=filled(p.body), result=result(p)) for p in fragment.providers),
    )


def fill(text: Traced, settings: dict[str, object]) -> Traced:
    """Fills every setting in whole statements.

    Args:
        text: Python statements, indented or not.
        settings: name -> a string, number, boolean or list of them.
    """
    edits = _fill_edits((source := TracedTree(text)).module, source, settings) if "setting(" in text.text else []
    return fill(text.edited(edits), settings) if edits else text


def _fill_edits(node: ast.AST, source: TracedTree, settings: dict[str, object]) -> list[Edit]:
    """Returns the outermost edits: the inside of a branch is filled in the next round."""
    if isinstance(node, ast.If) and _is_decided(node.test):
        return [_choose_branch(node, source, settings)]
    if isinstance(node, ast.IfExp) and _is_decided(node.test):
        chosen = node.body if _evaluate_test(node.test, source, settings) else node.orelse
        return [Edit(*source.span(node), source.traced[slice(*source.with_parentheses(chosen))])]
    if isinstance(node, ast.FormattedValue) and (edit := _number_edit(node, source, settings)):
        return [edit]
    if isinstance(node, ast.Call) and called_name(node) == "setting":
        return [_literal_edit(node, source, settings)]
    return [edit for child in children(node) for edit in _fill_edits(child, source, settings)]


def _literal_edit(call: ast.Call, source: TracedTree, settings: dict[str, object]) -> Edit:
    start, end = source.span(call)
    quote = "'" if "'" in source.code(call) else '"'  # that of the name: the call may be in an f-string
    text = literal(settings[_setting_name(call, source, settings)], source.where(call), quote)
    # `setting("n").real` needs (3), and `setting("n") ** 2` needs (-3)
    alone = text[0] != "-" and not (text[0].isdigit() and source.text[end : end + 1] == ".")
    return Edit(start, end, source.inserted(text if alone else f"({text})", start))


def _number_edit(node: ast.FormattedValue, source: TracedTree, settings: dict[str, object]) -> Edit | None:
    """Returns the edit of `{setting("n")}` in an f-string, if its value is an integer without a format."""
    if called_name(node.value) != "setting" or not isinstance(node.value, ast.Call):
        return None
    value = settings[_setting_name(node.value, source, settings)]
    start, end = source.span(node.value)
    start, close = source.text.rfind("{", 0, start), source.text.find("}", end)
    if source.text[end:close].strip() or not isinstance(value, int):
        return None
    return Edit(start, close + 1, source.inserted(str(value), start))


def _setting_name(call: ast.Call, source: TracedTree, settings: dict[str, object]) -> str:
    """Returns the name of the setting that a call asks for."""
    match call:
        case ast.Call(args=[ast.Constant(str(name))], keywords=[]):
            if name in settings:
                return name
            remedy = f"Give it under [settings] in the architecture or the target. {nearest(name, settings)}"
            raise LoomError(f"no selected architecture or target has the setting {name!r}", source.where(call), remedy)
    raise LoomError("setting() takes a name as a string", source.where(call), 'Write setting("NAME").')


def _is_decided(test: ast.expr) -> bool:
    """Returns whether a test has only settings and literals."""
    return {node.id for node in walk(test) if isinstance(node, ast.Name)} == {"setting"}


def _choose_branch(node: ast.If, source: TracedTree, settings: dict[str, object]) -> Edit:
    """Returns the edit that puts the statements of the true branch in place of the whole statement."""
    first, (start, end) = source.span(node)[0], source.without_comments(node)
    is_elif, block = source.text.startswith("elif", first), list[ast.stmt]()
    while not block:
        if _evaluate_test(node.test, source, settings):
            block = node.body
            continue
        match node.orelse:
            case [ast.If() as other] if source.text.startswith("elif", at := source.span(other)[0]):
                if _is_decided(other.test):
                    node = other
                elif is_elif:  # the other test is evaluated when the package runs
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


def _evaluate_test(test: ast.expr, source: TracedTree, settings: dict[str, object]) -> bool:
    """Evaluates a test over settings and literals."""
    start, end = source.span(test)
    edits = [Edit(one - start, other - start, new) for one, other, new in _fill_edits(test, source, settings)]
    try:
        return bool(evaluate(source.traced[start:end].edited(edits).text, {}))
    except (ValueError, TypeError, SyntaxError):
        remedy = f"Use {_ARGUMENTS} over settings and literals of one type."
        raise LoomError("this test of a setting cannot be decided while weaving", source.where(test), remedy) from None
