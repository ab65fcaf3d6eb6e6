"""Names that statements bind and read."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from generator import syntax
from generator.fragment import Splice
from generator.syntax import Source
from generator.traced import Traced

_HEAD = "if True:\n"


def as_block(body: Traced) -> Source:
    """Indented statements as a module that parses; `unblocked` takes the added line off again."""
    return Source(Traced.insert(_HEAD, body.origin_at(0)) + body)


def unblocked(traced: Traced) -> Traced:
    return traced[len(_HEAD) :]


def variables(node: cst.CSTNode) -> Iterable[cst.Name]:
    """The names that are variables: not attributes, not keywords of a call."""
    for child in syntax.children(node):
        if isinstance(child, cst.Name):
            if not (isinstance(node, cst.Attribute) and child is node.attr) and not (
                isinstance(node, cst.Arg) and child is node.keyword
            ):
                yield child
        else:
            yield from variables(child)


def bound_names(node: cst.CSTNode) -> set[str]:
    """The names that statements bind: by assignment, for, with, walrus, or as a nested function."""
    bound: set[str] = set()

    def targets(target: cst.CSTNode) -> None:
        if isinstance(target, cst.Name):
            bound.add(target.value)
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                targets(element.value)
        elif isinstance(target, cst.StarredElement):
            targets(target.value)

    for child in syntax.walk(node):
        if isinstance(child, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr)):
            targets(child.target)
        elif isinstance(child, cst.AsName):
            targets(child.name)
        elif isinstance(child, cst.FunctionDef):
            bound.add(child.name.value)
    return bound


def rebound_names(splice: Splice) -> set[str]:
    """The names of its host that a splice rebinds."""
    return bound_names(as_block(splice.body).module) & set(splice.reads)
