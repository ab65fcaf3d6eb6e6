"""Names that statements bind and read."""

from __future__ import annotations

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.code.syntax import Source
from generator.code.traced import Traced

_HEAD = "if True:\n"
_BINDING = frozenset(
    {
        *(cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.AsName),
        *(cst.MatchAs, cst.MatchStar, cst.MatchMapping, cst.FunctionDef, cst.ClassDef, cst.ImportAlias),
    }
)


def as_block(body: Traced) -> Source:
    """Indented statements as a module that parses; `unblocked` takes the added line off again."""
    return Source(Traced.insert(_HEAD, body.origin_at(0)) + body)


def unblocked(traced: Traced) -> Traced:
    return traced[len(_HEAD) :]


@remembered
def variables(node: cst.CSTNode) -> tuple[cst.Name, ...]:
    """The names that are variables: not attributes, not keywords of a call."""
    found: list[cst.Name] = []
    for child in syntax.children(node):
        if type(child) is cst.Name:
            if not (isinstance(node, cst.Attribute) and child is node.attr) and not (
                isinstance(node, cst.Arg) and child is node.keyword
            ):
                found.append(child)
        else:
            found += variables(child)
    return tuple(found)


def bound_names(node: cst.CSTNode, comprehensions: bool = True) -> set[str]:
    """The names that statements bind: by assignment, for, with, import, match, or as a nested function.

    Args:
        comprehensions: whether the variables of comprehensions count, which are known only inside them.
    """
    bound: set[str] = set()
    for child in syntax.walk(node):
        if comprehensions or not isinstance(child, cst.CompFor):
            bound |= bound_by(child)
    return bound


def bound_by(node: cst.CSTNode) -> set[str]:
    """The names that a node itself binds."""
    if type(node) not in _BINDING:  # isinstance takes long for libcst's nodes
        return set()
    if isinstance(node, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr)):
        return _targets(node.target)
    if isinstance(node, (cst.AsName, cst.MatchAs, cst.MatchStar)):
        return _targets(node.name)
    if isinstance(node, cst.MatchMapping):
        return _targets(node.rest)
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return {node.name.value}
    alias = cst.ensure_type(node, cst.ImportAlias)
    return {(alias.evaluated_alias or alias.evaluated_name).split(".")[0]}


def _targets(target: cst.CSTNode | None) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, (cst.Tuple, cst.List)):
        return {name for element in target.elements for name in _targets(element)}
    if isinstance(target, (cst.StarredElement, cst.Element)):
        return _targets(target.value)
    return set()


def inner_parameters(node: cst.CSTNode) -> set[str]:
    """The parameters of all functions and lambdas below, and of the node itself."""
    return {parameter.name.value for parameter in syntax.walk(node) if type(parameter) is cst.Param}


def operand(text: str) -> str:
    """An expression in a form that can stand anywhere: in parentheses, unless it is one operand already."""
    node = syntax.parse_expression(text)
    closed = isinstance(node, (cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.SimpleString)) or node.lpar
    return text if closed or isinstance(node, (cst.List, cst.Dict, cst.Set)) else f"({text})"


def in_place(text: str, parent: cst.CSTNode | None) -> str:
    """An expression as it can stand below a node: in parentheses where the node is an expression around it."""
    around = isinstance(parent, cst.BaseExpression) and not isinstance(parent, (cst.Lambda, cst.NamedExpr))
    return operand(text) if around else text
