"""The fill operator: `setting("name")` becomes a literal, and a branch on a setting is decided.

before                                      after, for an architecture with gated = true
    if setting("gated"):                        h = jax.nn.silu(self.gate(x)) * self.up(x)
        h = jax.nn.silu(self.gate(x)) * self.up(x)
    else:
        h = jax.nn.gelu(self.up(x))
"""

from __future__ import annotations

import ast

import libcst as cst

from generator.code import syntax
from generator.code.literals import literal
from generator.code.syntax import Source
from generator.code.traced import Edit, Traced
from generator.errors import LoomError, nearest
from generator.recipe.expressions import evaluate

_SPELLED = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")


def fill(text: Traced, settings: dict[str, object]) -> Traced:
    """Fills every setting in whole statements.

    Args:
        text: Python statements, indented or not.
        settings: name -> a string, number, boolean or list of them.
    """
    if "setting(" not in text.text:
        return text
    indented = text.text.startswith((" ", "\t"))
    head = Traced.insert("if True:\n", text.origin_at(0)) if indented else Traced()
    source = Source(head + text)
    edits = _edits(source.module, source, settings)
    return fill(source.traced.edited(edits)[len(head.text) :], settings) if edits else text


def _edits(node: cst.CSTNode, source: Source, settings: dict[str, object]) -> list[Edit]:
    """Outermost edits only: what stands inside a decided branch is filled in the next round."""
    if isinstance(node, cst.If) and _is_decided(node.test):
        return [_decide(node, source, settings)]
    if isinstance(node, cst.IfExp) and _is_decided(node.test):
        chosen = source.traced[slice(*source.span(node.body if _holds(node.test, source, settings) else node.orelse))]
        return [Edit(*source.span(node), _in_parentheses(chosen) if node.lpar else chosen)]
    if isinstance(node, cst.FormattedStringExpression) and (number := _number(node, source, settings)):
        start, end = source.span(node)
        return [Edit(start, end, Traced.insert(number, source.traced.origin_at(start)))]
    if isinstance(node, cst.Call) and syntax.called(node) == "setting":
        return [_literal(node, source, settings)]
    return [edit for child in syntax.children(node) for edit in _edits(child, source, settings)]


def _in_parentheses(text: Traced) -> Traced:
    origin = text.origin_at(0)
    return Traced.join([Traced.insert("(", origin), text, Traced.insert(")", origin)])


def _literal(call: cst.Call, source: Source, settings: dict[str, object]) -> Edit:
    start, end = source.span(call)
    quote = "'" if "'" in source.code(call) else '"'  # as the name has it: it may stand in an f-string
    text = literal(settings[_name(call, source, settings)], source.where(call), quote)
    # `setting("n").real` needs (3), and `setting("n") ** 2` needs (-3)
    alone = text[0] != "-" and not (text[0].isdigit() and source.text[end : end + 1] == ".")
    value = Traced.insert(text, source.traced.origin_at(start))
    return Edit(start, end, value if alone else _in_parentheses(value))


def _number(node: cst.FormattedStringExpression, source: Source, settings: dict[str, object]) -> str:
    """What `{setting("n")}` in an f-string is, where that is a number as it stands; else ''."""
    plain = not (node.conversion or node.format_spec or node.equal)
    if not plain or not isinstance(node.expression, cst.Call) or syntax.called(node.expression) != "setting":
        return ""
    value = settings[_name(node.expression, source, settings)]
    return str(value) if isinstance(value, int) else ""


def _name(call: cst.Call, source: Source, settings: dict[str, object]) -> str:
    """The setting that a call asks for; there is one of that name."""
    argument = call.args[0] if len(call.args) == 1 else None
    if argument is None or argument.keyword or not isinstance(argument.value, cst.SimpleString):
        raise LoomError("setting() takes a name as a string", source.where(call), 'Write setting("NAME").')
    name = ast.literal_eval(source.code(argument.value))
    if name not in settings:
        remedy = f"Give it under [settings] in the architecture or the target. {nearest(name, settings)}"
        raise LoomError(f"no selected architecture or target has the setting {name!r}", source.where(call), remedy)
    return name


def _is_decided(test: cst.BaseExpression) -> bool:
    """Whether a test is over settings and literals alone."""
    names = {node.value for node in syntax.walk(test) if isinstance(node, cst.Name)}
    return "setting" in names and names <= {"setting", "True", "False", "None"}


def _decide(node: cst.If, source: Source, settings: dict[str, object]) -> Edit:
    """The statements of the branch that holds, in place of the whole statement."""
    first = source.span(node)[0]
    start, end, indent = source.text.rfind("\n", 0, first) + 1, source.lines(node)[1], source.indent(node)
    is_elif = source.text.startswith("elif", first)
    branch: cst.If | cst.Else | None = node
    while isinstance(branch, cst.If) and _is_decided(branch.test) and not _holds(branch.test, source, settings):
        branch = branch.orelse
    if branch is None:
        return Edit(start, end, Traced() if is_elif else syntax.placeholder(node, source))
    if isinstance(branch, cst.If) and not _is_decided(branch.test):  # an elif that is decided when the package runs
        at = source.span(branch)[0]
        if is_elif:
            return Edit(start, source.text.rfind("\n", 0, at) + 1, Traced())
        return Edit(first, at + len("elif"), Traced.insert("if", source.traced.origin_at(at)))
    statements = syntax.body(branch)
    inside = source.traced[source.lines(statements[0])[0] : source.lines(statements[-1])[1]]
    if is_elif:
        return Edit(start, end, Traced.insert(" " * indent + "else:\n", source.traced.origin_at(first)) + inside)
    return Edit(start, end, syntax.reindent(inside, indent))


def _holds(test: cst.BaseExpression, source: Source, settings: dict[str, object]) -> bool:
    """Evaluates a test over settings and literals."""
    for node in syntax.walk(test):
        if isinstance(node, cst.Call) and syntax.called(node) == "setting":
            _name(node, source, settings)  # or else an error

    try:
        return bool(evaluate(source.code(test), {}, {"setting": settings.__getitem__}))
    except (ValueError, TypeError):
        remedy = f"Use {', '.join(_SPELLED)}, not, and, or over settings and literals of one type."
        raise LoomError("this test of a setting cannot be decided while weaving", source.where(test), remedy) from None
