"""Two faults of style that ruff has no rule for: assignments of targets that do not belong together, hidden effects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

# methods and functions that are called for what they change
METHODS = set("add append appendleft clear discard extend insert pop popitem popleft put remove update write".split())
FUNCTIONS = set("delattr print setattr".split())
CONSUMERS = set("all any dict list max min next set sorted sum tuple".split())
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
UNLIKE = "assign these apart: `{}`"
THROWN_AWAY = "write a statement, as the value is thrown away: `{}`"
HIDDEN = "call {} in a statement of its own: `{}`"


def find_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line of each fault, and what to do."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                if len(targets) == len(values) and not are_related(targets, values):
                    yield node.lineno, UNLIKE.format(ast.unparse(node))
            case ast.Expr(value=value):
                if is_thrown_away(value):
                    yield node.lineno, THROWN_AWAY.format(ast.unparse(node))
            case ast.FormattedValue(value=value):
                yield from find_hidden_effects(node, [value])
            case ast.BoolOp(values=values):
                yield from find_hidden_effects(node, values)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield from find_hidden_effects(node, [test, body, orelse])
            case ast.comprehension(ifs=conditions):
                yield from find_hidden_effects(node, conditions)
            case ast.Subscript(value=ast.Tuple(elts=values) | ast.List(elts=values)):
                yield from find_hidden_effects(node, values)


def are_related(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    """Returns whether targets of one assignment belong together.

    They do if their values are alike, if one gets what another had (a swap), if each value is a call that takes its
    own target (`q, k = self.query_norm(q), self.key_norm(k)`), or if all are sizes of arrays (`(B, T, D), V = ...`).
    """
    names = [ast.unparse(target) for target in targets]
    if all(are_alike(*pair) for pair in pairwise(values)):
        return True
    is_sizes = all(re.fullmatch(r"[A-Z_]|\(([A-Z_](, |,?\)))+", name) for name in names)
    if is_sizes or any(ast.unparse(value) in names for value in values):
        return True
    reads = [{ast.unparse(node) for node in ast.walk(value) if isinstance(node, ast.expr)} for value in values]
    if all(len({*names} & read - {name}) for name, read in zip(names, reads, strict=True)):
        return True
    arguments = [value.args[0] for value in values if isinstance(value, ast.Call) and value.args]
    return names == [ast.unparse(argument) for argument in arguments]


def are_alike(one: ast.expr, other: ast.expr) -> bool:
    """Returns whether two values are of one kind: simple ones, collections, or the same operation on other operands."""
    match one, other:
        case ast.Constant(), ast.Constant():
            return type(one.value) is type(other.value)
        case ast.Constant() | ast.Name(), ast.Constant() | ast.Name():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=operand), _:
            return are_alike(operand, other)
        case _, ast.UnaryOp(op=ast.USub(), operand=operand):
            return are_alike(one, operand)
        case ast.Attribute(), ast.Attribute():
            return one.attr == other.attr or same(one.value, other.value)
        case ast.Subscript(), ast.Subscript():
            return same(one.value, other.value) or same(one.slice, other.slice)
        case (ast.Subscript(value=ast.Call() as call), ast.Call() as again) | (
            ast.Call() as call,
            ast.Subscript(value=ast.Call() as again),
        ):
            return are_alike(call, again)
        case ast.Call(), ast.Call():
            return same(one.func, other.func) or are_related_calls(one, other)
        case ast.BinOp(), ast.BinOp():
            alike = are_alike(one.left, other.left) or are_alike(one.right, other.right)
            return type(one.op) is type(other.op) and alike
        case ast.ListComp() | ast.SetComp(), ast.ListComp() | ast.SetComp():
            return are_alike(one.elt, other.elt)
        case ast.IfExp(), ast.IfExp():
            return are_alike(one.body, other.body)
    return type(one) is type(other) or (is_collection(one) and is_collection(other))


def are_related_calls(one: ast.Call, other: ast.Call) -> bool:
    """Returns whether two functions read one thing, or one method reads two."""
    if one.args and [*map(ast.dump, one.args)] == [*map(ast.dump, other.args)]:
        return True
    match one.func, other.func:
        case ast.Attribute(), ast.Attribute():
            is_one_object = same(one.func.value, other.func.value)
            return one.func.attr == other.func.attr or (is_one_object and are_equal_first(one.args, other.args))
    return False


def are_equal_first(one: list[ast.expr], other: list[ast.expr]) -> bool:
    """Returns whether two calls have the same first argument, or none."""
    return [*map(ast.dump, one[:1])] == [*map(ast.dump, other[:1])]


def same(one: ast.expr, other: ast.expr) -> bool:
    """Returns whether two expressions have the same text."""
    return ast.dump(one) == ast.dump(other)


def is_collection(value: ast.expr) -> bool:
    """Returns whether a value is a literal of a collection, or an empty one."""
    match value:
        case ast.List() | ast.Tuple() | ast.Dict() | ast.Set():
            return True
        case ast.Call(func=ast.Name(id="set" | "dict" | "list"), args=[], keywords=[]):
            return True
    return False


def is_thrown_away(value: ast.expr) -> bool:
    """Returns whether the value of a statement is thrown away: an operator, or a comprehension for its effects."""
    match value:
        case ast.Call(func=ast.Name(id=name), args=[argument, *_]) if name in CONSUMERS:
            is_map = isinstance(argument, ast.Call) and ast.unparse(argument.func) == "map"
            return is_map or isinstance(argument, COMPREHENSIONS)
    return not isinstance(value, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.Constant))


def find_hidden_effects(where: ast.AST, values: list[ast.expr]) -> Iterator[tuple[int, str]]:
    """Yields the calls for effects in a part of an expression that reads as a value."""
    for node in (node for value in values for node in ast.walk(value)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Subscript(value=ast.Attribute(attr="at")))):
                pass  # an array of JAX does not change
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                yield node.lineno, HIDDEN.format(name, ast.unparse(where))
            case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
                yield node.lineno, HIDDEN.format(name, ast.unparse(where))
