"""Expressions in architecture files and tests of settings, evaluated without Python's own names."""

from __future__ import annotations

import ast
import operator as op
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from generator.code.caching import cached

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    **{ast.Eq: op.eq, ast.NotEq: op.ne, ast.Lt: op.lt, ast.LtE: op.le, ast.Gt: op.gt, ast.GtE: op.ge},
    **{ast.Is: op.is_, ast.IsNot: op.is_not, ast.In: lambda one, many: one in many},
    ast.NotIn: lambda one, many: one not in many,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    **{ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.FloorDiv: op.floordiv, ast.Mod: op.mod},
    ast.Div: op.truediv,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"len": len, "max": max, "min": min, "range": range}


@cached
def _parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def evaluate(text: str, names: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] = _FUNCTIONS) -> Any:
    """Evaluates an expression of look-ups, comparisons and arithmetic.

    Args:
        names: what it may speak of: tables, of which it may look up and `get` entries, and `config`, which has sizes.
        functions: that it may call.

    Raises:
        Exception: it cannot be evaluated, for one of the reasons that Python has, or it says what it may not.
    """

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(constant):
                return constant
            case ast.Name(name):
                if name not in names:
                    raise NameError(f"name {name!r} is not defined")
                return names[name]
            case ast.Attribute(ast.Name("config"), name) if "config" in names and not name.startswith("_"):
                return getattr(names["config"], name)
            case ast.Subscript(of, key) if not isinstance(key, ast.Slice):
                return value(of)[value(key)]
            case ast.Call(ast.Attribute(of, "get"), arguments, []):
                return dict.get(value(of), *map(value, arguments))
            case ast.Call(ast.Name(name), arguments, []) if name in functions:
                return functions[name](*map(value, arguments))
            case ast.List(items) | ast.Tuple(items):
                return [value(item) for item in items]
            case ast.Dict([], []):
                return {}
            case ast.BoolOp(ast.And() | ast.Or() as word, values):
                found: Any = None
                for one in values:
                    found = value(one)
                    if bool(found) == isinstance(word, ast.Or):
                        break
                return found
            case ast.IfExp(test, chosen, other):
                return value(chosen) if value(test) else value(other)
            case ast.UnaryOp(ast.Not(), operand):
                return not value(operand)
            case ast.UnaryOp(ast.USub(), operand):
                return -value(operand)
            case ast.Compare(left, words, others) if all(type(word) in _COMPARISONS for word in words):
                pairs = zip(words, pairwise(map(value, (left, *others))), strict=True)
                return all(_COMPARISONS[type(w)](*pair) for w, pair in pairs)
            case ast.BinOp(left, word, right) if type(word) in _ARITHMETIC:
                numbers = value(left), value(right)
                if all(isinstance(number, (int, float)) and abs(number) < 1e30 for number in numbers):
                    return _ARITHMETIC[type(word)](*numbers)
                raise TypeError("arithmetic is for numbers")
        raise ValueError(f"it may not say {ast.unparse(node)}")

    return value(_parsed(text))


def is_count(text: str) -> bool:
    """Whether an expression is arithmetic over the sizes of `config`, as stands in the code of a package."""

    def is_plain(node: ast.expr) -> bool:
        match node:
            case ast.Constant(number):
                return type(number) is int
            case ast.Attribute(ast.Name("config")):
                return True
            case ast.BinOp(left, word, right):
                return type(word) in _ARITHMETIC and is_plain(left) and is_plain(right)
        return False

    try:
        return is_plain(_parsed(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
