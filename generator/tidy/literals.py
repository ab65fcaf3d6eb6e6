"""Literals that several fragments write a part of."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import libcst as cst

from generator.code.edits import Edits
from generator.code.tree import called_name, walk
from generator.tidy.pair import WIDTH, Pair, Pairs

_PLAIN = re.compile(r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' """, re.VERBOSE)  # one string without a prefix
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


class OneLiteral:
    """Writes one literal for one that the next statement adds to."""

    PAIRS: ClassVar[Pairs] = (
        (
            """
            def bounds():
                found = {"layers": (1, 9)}
                found.update(width=(1, 8), heads=(1, 4))
                return found, 1
            """,
            """
            def bounds():
                found = {"layers": (1, 9), "width": (1, 8), "heads": (1, 4)}
                return found, 1
            """,
        ),
        (
            """
            def commands():
                names = {"import": load}
                names["export"] = save
                return names, 1
            """,
            """
            def commands():
                names = {"import": load, "export": save}
                return names, 1
            """,
        ),
        (
            """
            def kinds():
                names = {"remat"}
                names.add("offload")
                return names, 1
            """,
            """
            def kinds():
                names = {"remat", "offload"}
                return names, 1
            """,
        ),
        (
            """
            def remedy():
                text = "raise --mesh-tensor"
                text += ", or give --int8"
                return text, 1
            """,
            """
            def remedy():
                text = "raise --mesh-tensor, or give --int8"
                return text, 1
            """,
        ),
    )

    @staticmethod
    def applies(pair: Pair) -> bool:
        if pair.has_comment_below or pair.joined_width > WIDTH:
            return False
        return (bool(_added(pair)) and _are_new(pair)) or _is_longer_text(pair)

    @staticmethod
    def apply(pair: Pair, edits: Edits) -> None:
        if _is_longer_text(pair):
            more = edits.find(_value(pair.second))

            def joined(old: Any) -> Any:
                return old.with_changes(value=f"{old.value[:-1]}{more.value[1:]}")

            edits.change(pair.value, joined)
            edits.drop(pair.second)
            return
        literal = pair.value
        added = [
            (edits.find(key) if isinstance(key, ast.AST) else key, edits.find(value)) for key, value in _added(pair)
        ]
        cause = edits.source.origin(pair.second)

        def extended(old: cst.Dict | cst.Set) -> cst.Dict | cst.Set:
            elements = list(old.elements)
            ends_in_comma = bool(elements) and isinstance(elements[-1].comma, cst.Comma)
            if elements and not ends_in_comma:
                elements[-1] = edits.altered(elements[-1], comma=edits.new(_COMMA.deep_clone(), cause))
            for key, value in added:
                name: Any = edits.expression(f'"{key}"', cause) if isinstance(key, str) else key
                element: Any = cst.DictElement(name, value) if isinstance(old, cst.Dict) else cst.Element(value)
                elements.append(element.with_changes(comma=edits.new(_COMMA.deep_clone(), cause)))
            if not ends_in_comma:
                elements[-1] = elements[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return old.with_changes(elements=elements)

        edits.change(literal, extended)
        edits.drop(pair.second)


def _value(statement: ast.stmt) -> ast.expr:
    value: ast.expr = statement.value  # type: ignore[attr-defined]
    return value


def _added(pair: Pair) -> Sequence[tuple[ast.expr | str | None, ast.expr]]:
    """Returns the items that the second statement adds to the literal of the first: keys, None in a set, and values."""
    name, literal, second = pair.name, pair.value, pair.second
    added: Sequence[tuple[Any, ast.expr]] = ()
    if isinstance(literal, ast.Dict):
        match second:
            case ast.AugAssign(target=ast.Name(id=pair.name), op=ast.BitOr(), value=ast.Dict(keys, values)):
                added = list(zip(keys, values, strict=True))
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=pair.name), slice=key)], value=value):
                added = [(key, value)]
            case ast.Expr(ast.Call(args=[], keywords=keywords) as call) if called_name(call) == f"{name}.update":
                added = [(keyword.arg, keyword.value) for keyword in keywords]
    elif isinstance(literal, ast.Set):
        match second:
            case ast.Expr(ast.Call(args=[value], keywords=[]) as call) if called_name(call) == f"{name}.add":
                added = [(None, value)]
    if any(isinstance(value, ast.Starred) or (key is None and isinstance(literal, ast.Dict)) for key, value in added):
        return ()
    below = [node for item in added for node in item if isinstance(node, ast.AST)]
    return () if any(isinstance(node, ast.Name) and node.id == name for node in walk(*below)) else added


def _are_new(pair: Pair) -> bool:
    """Returns whether all keys are texts that differ, so that their order decides nothing; a set has no keys."""
    if not isinstance(pair.value, ast.Dict):
        return True
    keys = [*pair.value.keys, *(key for key, _ in _added(pair))]
    texts = [key.value if isinstance(key, ast.Constant) else key for key in keys]
    return all(isinstance(text, str) for text in texts) and len(set(texts)) == len(texts)


def _is_longer_text(pair: Pair) -> bool:
    """Returns whether the second statement adds a plain string to one, in the same quotes."""
    match pair.value, pair.second:
        case ast.Constant(str()), ast.AugAssign(
            target=ast.Name(id=pair.name), op=ast.Add(), value=ast.Constant(str()) as more
        ):
            one, two = (pair.tree.text[slice(*pair.tree.span(node))] for node in (pair.value, more))
            return one[0] == two[0] and bool(_PLAIN.fullmatch(one) and _PLAIN.fullmatch(two))
    return False
