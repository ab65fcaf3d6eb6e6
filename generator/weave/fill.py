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

from generator import syntax
from generator.errors import LoomError, nearest
from generator.syntax import Source
from generator.traced import Edit, Traced


def fill(text: Traced, settings: dict[str, object]) -> Traced:
    """Fills every setting in whole statements.

    Args:
        text: Python statements, indented or not.
        settings: name -> a string, number, boolean or list of them.

    Raises:
        LoomError: no selected architecture or target has the setting.
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
    if syntax.called(node) == "setting":
        start, end = source.span(node)
        value = repr(_value(node, source, settings)).replace("'", '"')
        return [Edit(start, end, Traced.insert(value, source.traced.origin_at(start)))]
    return [edit for child in syntax.children(node) for edit in _edits(child, source, settings)]


def _is_decided(test: cst.BaseExpression) -> bool:
    names = [node.value for node in syntax.walk(test) if isinstance(node, cst.Name)]
    return bool(names) and set(names) == {"setting"}


def _value(call: cst.Call, source: Source, settings: dict[str, object]) -> object:
    name = ast.literal_eval(source.code(call.args[0].value))
    if name not in settings:
        remedy = f"Give it under [settings] in the architecture or the target. {nearest(name, settings)}"
        raise LoomError(f"no selected architecture or target has the setting {name!r}", source.where(call), remedy)
    return settings[name]


def _decide(node: cst.If, source: Source, settings: dict[str, object]) -> Edit:
    """The statements of the branch that holds, in place of the whole statement."""
    start = source.text.rfind("\n", 0, source.span(node)[0]) + 1
    end = source.lines(node)[1]
    branch: cst.If | cst.Else | None = node
    while isinstance(branch, cst.If) and not _holds(branch.test, source, settings):
        branch = branch.orelse
    if branch is None:
        return Edit(start, end, Traced())
    statements = syntax.body(branch)
    first, last = source.lines(statements[0])[0], source.lines(statements[-1])[1]
    return Edit(start, end, syntax.reindent(source.traced[first:last], source.indent(node)))


def _holds(test: cst.BaseExpression, source: Source, settings: dict[str, object]) -> bool:
    """Evaluates a test over settings and literals: comparisons, `in`, `not`, `and`, `or`."""
    tree = ast.parse(source.code(test), mode="eval").body

    def evaluate(node: ast.expr) -> object:
        match node:
            case ast.Call():
                name = ast.literal_eval(node.args[0])
                if name not in settings:
                    raise LoomError(
                        f"no selected architecture or target has the setting {name!r}",
                        source.where(test),
                        f"Give it under [settings] in the architecture or the target. {nearest(name, settings)}",
                    )
                return settings[name]
            case ast.BoolOp(op=ast.And()):
                return all(evaluate(value) for value in node.values)
            case ast.BoolOp():
                return any(evaluate(value) for value in node.values)
            case ast.UnaryOp(op=ast.Not()):
                return not evaluate(node.operand)
            case ast.Compare(ops=[operator], comparators=[right]):
                left, right = evaluate(node.left), evaluate(right)
                match operator:
                    case ast.Eq():
                        return left == right
                    case ast.NotEq():
                        return left != right
                    case ast.In():
                        return left in right
                    case ast.Gt():
                        return left > right
                    case ast.Lt():
                        return left < right
        return ast.literal_eval(node)

    try:
        return bool(evaluate(tree))
    except ValueError:
        remedy = "Use ==, !=, <, >, in, not, and, or over settings and literals."
        raise LoomError("this test of a setting cannot be decided while weaving", source.where(test), remedy) from None
