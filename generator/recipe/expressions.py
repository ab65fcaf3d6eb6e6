"""Evaluates the expressions of architecture files and of `if setting(...)`, without Python's own names."""

from __future__ import annotations

import ast
import operator as op
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from generator.code.caching import cached

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    **{ast.Eq: op.eq, ast.NotEq: op.ne, ast.Lt: op.lt, ast.LtE: op.le, ast.Gt: op.gt, ast.GtE: op.ge},
    **{ast.Is: op.is_, ast.IsNot: op.is_not, ast.In: lambda item, items: item in items},
    ast.NotIn: lambda item, items: item not in items,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    **{ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.FloorDiv: op.floordiv, ast.Mod: op.mod},
    ast.Div: op.truediv,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"len": len, "max": max, "min": min, "range": range}


@cached
def _parse_expression(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def evaluate(text: str, names: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] = _FUNCTIONS) -> Any:
    """Evaluates an expression of look-ups, comparisons and arithmetic.

    Args:
        names: name -> value: tables, whose entries the expression may look up and `get`, and `config` with its sizes.
        functions: those that it may call.

    Raises:
        Exception: of any class that evaluation in Python raises; ValueError where the grammar does not allow a part.
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
            case ast.Subscript(table, key) if not isinstance(key, ast.Slice):
                return value(table)[value(key)]
            case ast.Call(ast.Attribute(table, "get"), arguments, []):
                return dict.get(value(table), *map(value, arguments))
            case ast.Call(ast.Name(name), arguments, []) if name in functions:
                return functions[name](*map(value, arguments))
            case ast.List(items) | ast.Tuple(items):
                return [value(item) for item in items]
            case ast.Dict([], []):
                return {}
            case ast.BoolOp(operator, operands):
                result: Any = None
                for operand in operands:
                    result = value(operand)
                    if bool(result) == isinstance(operator, ast.Or):
                        break
                return result
            case ast.IfExp(test, chosen, other):
                return value(chosen) if value(test) else value(other)
            case ast.UnaryOp(ast.Not(), operand):
                return not value(operand)
            case ast.UnaryOp(ast.USub(), operand):
                return -value(operand)
            case ast.Compare(left, operators, others):
                pairs = zip(operators, pairwise(map(value, (left, *others))), strict=True)
                return all(_COMPARISONS[type(operator)](*pair) for operator, pair in pairs)
            case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
                numbers = value(left), value(right)
                if all(isinstance(number, (int, float)) and abs(number) < 1e30 for number in numbers):
                    return _ARITHMETIC[type(operator)](*numbers)
                raise TypeError("arithmetic is for numbers")
        raise ValueError(f"it may not contain {ast.unparse(node)}")

    return value(_parse_expression(text))


def is_count(text: str) -> bool:
    """Returns whether an expression is arithmetic over the sizes of `config`, as the code of a package may contain."""

    def is_plain(node: ast.expr) -> bool:
        match node:
            case ast.Constant(number):
                return type(number) is int
            case ast.Attribute(ast.Name("config")):
                return True
            case ast.BinOp(left, operator, right):
                return type(operator) in _ARITHMETIC and is_plain(left) and is_plain(right)
        return False

    try:
        return is_plain(_parse_expression(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
