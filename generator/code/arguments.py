"""Adds items to what commas separate: arguments, parameters, and elements beside an expression."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import libcst as cst

from generator.code.edits import Edits
from generator.code.traced import Origin

Added = tuple[str, Origin]  # the text of an item, and the line that caused it


def comma(edits: Edits, cause: Origin) -> cst.Comma:
    """Returns a new comma and the blank after it."""
    return edits.new(cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")), cause)


def add_arguments(edits: Edits, call: ast.Call, added: Sequence[Added], place: int | None = None) -> None:
    """Adds arguments to a call.

    Args:
        place: how many come before them, None for all.
    """

    def change(node: cst.Call) -> cst.Call:
        new = [(cst.ensure_type(cst.parse_expression(f"f({text})"), cst.Call).args[0], cause) for text, cause in added]
        count = len(node.args) if place is None else place
        return node.with_changes(args=_insert(edits, node.args, count, new, "whitespace_after_arg"))

    edits.change(call, change)


def add_parameters(
    edits: Edits, function: cst.FunctionDef, required: Sequence[Added], optional: Sequence[Added]
) -> None:
    """Adds parameters to a function: required ones below those without default, optional ones below all of these."""

    def parse(text: str) -> cst.Param:
        return cst.ensure_type(cst.parse_statement(f"def f({text}): ..."), cst.FunctionDef).params.params[0]

    def change(node: cst.Parameters) -> cst.Parameters:
        first, second = ([(parse(text), cause) for text, cause in added] for added in (required, optional))
        count = sum(parameter.default is None for parameter in node.params)
        params = _insert(edits, node.params, count, first, "whitespace_after_param")
        params = _insert(edits, params, len(params), second, "whitespace_after_param")
        if not node.params and (node.kwonly_params or node.star_kwarg):
            params[-1] = edits.altered(params[-1], comma=comma(edits, [*required, *optional][0][1]))
        return node.with_changes(params=params)

    edits.change(function.params, change)


def _insert(
    edits: Edits, items: Sequence[Any], place: int, added: Sequence[tuple[Any, Origin]], blank: str
) -> list[Any]:
    """Returns items with others after the first few. The comma of the item before them is that of the last one then.

    Args:
        blank: the field for the white space after an item.
    """
    result, last = list(items), place - 1
    if not added:
        return result
    if not items:
        commas = [comma(edits, cause) for _, cause in added[1:]]
        return [_with_comma(edits, item, cause, mark) for (item, cause), mark in _pairs(added, [*commas, None])]
    if not place:
        return [_with_comma(edits, item, cause, comma(edits, cause)) for item, cause in added] + result
    before = result[last]
    commas = [comma(edits, cause) for _, cause in added[1:]]
    new = [_with_comma(edits, item, cause, mark) for (item, cause), mark in _pairs(added, [*commas, before.comma])]
    new[-1] = edits.altered(new[-1], **{blank: getattr(before, blank)})
    result[last] = edits.altered(before, comma=comma(edits, added[0][1]), **{blank: cst.SimpleWhitespace("")})
    return [*result[:place], *new, *result[place:]]


def _pairs(added: Sequence[tuple[Any, Origin]], commas: Sequence[Any]) -> Any:
    return zip(added, commas, strict=True)


def _with_comma(edits: Edits, item: Any, cause: Origin, mark: Any) -> Any:
    return edits.new(item.with_changes(comma=mark) if mark is not None else item, cause)


def beside(edits: Edits, node: Any, names: Sequence[str], cause: Origin) -> cst.Tuple:
    """Returns a tuple, without parentheses, of an expression or a target, and of names: `(a, b), name`."""
    if isinstance(node, cst.Tuple) and not node.lpar:
        left, right = edits.new(cst.LeftParen(), cause), edits.new(cst.RightParen(), cause)
        node = edits.altered(node, lpar=[left], rpar=[right])
    return edits.altered(packed(edits, node, names, cause), lpar=(), rpar=())


def packed(edits: Edits, node: Any, names: Sequence[str], cause: Origin) -> cst.Tuple:
    """Returns a tuple, in parentheses, of an expression and of others."""
    new = cst.ensure_type(cst.parse_expression(f"(_, {', '.join(names)})"), cst.Tuple)
    first, *others = new.elements
    return edits.new(new.with_changes(elements=[first.with_changes(value=node), *others]), cause)


def first_item(edits: Edits, call: cst.Call, cause: Origin) -> cst.Subscript:
    """Returns `call[0]`, in the parentheses around the call."""
    item = cst.parse_expression("_[0]").with_changes(value=edits.altered(call, lpar=(), rpar=()))
    return edits.in_parentheses_of(call, edits.new(item, cause))


def tuple_type(edits: Edits, first: Any, others: Sequence[str], cause: Origin) -> cst.Subscript:
    """Returns `tuple[FIRST, OTHER, ...]`."""
    new = cst.ensure_type(cst.parse_expression(f"tuple[_, {', '.join(others)}]"), cst.Subscript)
    head, *rest = new.slice
    return edits.new(new.with_changes(slice=[head.with_changes(slice=cst.Index(first)), *rest]), cause)
