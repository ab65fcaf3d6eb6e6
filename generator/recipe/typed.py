"""Values of TOML files, checked against the types that they are declared to be of."""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from generator.errors import LoomError, nearest, short
from generator.language.parts import Field
from generator.recipe.schema import TABLES, WORDS, Table

_TYPES = {
    **{"str": "a string", "int": "an integer", "float": "a number", "bool": "true or false", "null": "nothing"},
    **{"array": "a list", "object": "a table"},
}
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str}
AnyTable = TypeVar("AnyTable", bound=Table)


def typed(data: dict[str, Any], kind: type[AnyTable], path: str, line_of: Callable[..., int]) -> AnyTable:
    """The tables of a file, as its kind of file holds them.

    Args:
        path: how the error names the file.
        line_of: the keys that lead to a value -> the line on which it stands.
    """
    message = _refusal(data, kind)
    if not message:
        return msgspec.convert(data, kind)
    keys = _keys(data, kind, message)
    name, table = next((TABLES[key] for key in reversed(keys) if key in TABLES), (kind.__name__.lower(), kind))
    where = f"{path}:{line_of(*keys)}" if keys else path
    if missing := re.match(r"Object missing required field `(\w+)`", message):
        _at(data, keys)[missing[1]] = None
        raise LoomError(
            f"this {name} has no {missing[1]}", where, f"Add {missing[1]}, {_wanted(_refusal(data, kind))}."
        )
    if unknown := re.match(r"Object contains unknown field `(.*?)`( - at `|$)", message, re.DOTALL):
        where = f"{path}:{line_of(*keys, unknown[1])}"
        raise LoomError(
            f"unknown key {unknown[1]!r} in this {name}", where, nearest(unknown[1], table.__struct_fields__)
        )
    wanted = _wanted(message)
    if "`key` in" in message:
        raise LoomError(f"the key {keys[-1]!r} is not {wanted}", where, "Give it another name.")
    inside = keys[2:] if len(keys) > 2 and isinstance(keys[1], int) else keys  # of which table its line tells
    shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in inside).removeprefix(".")
    raise LoomError(f"{shown} is {described(_at(data, keys))}, not {wanted}", where, f"Give {wanted}.")


def is_of(annotation: ast.expr, value: object) -> bool:
    """Whether a value is of the type that an annotation names; what is not known here may have any."""
    try:
        return not _refusal(value, _type(annotation))
    except TypeError:  # a union that msgspec cannot tell apart
        return True


def check_value(member: Field, value: object, where: str) -> None:
    """Refuses a value that is not of the type of a field, and a number that is not finite."""
    for number in value if isinstance(value, tuple) else [value]:
        if isinstance(number, float) and not math.isfinite(number):
            raise LoomError(f"{member.name} is {number}", where, "Give a finite number.")
    statement = member.statement
    if isinstance(statement, ast.AnnAssign) and not is_of(statement.annotation, value):
        message = f"{member.name} is {described(value)}, and {member.fragment} has it as {member.kind}"
        raise LoomError(message, where, "Give a value of that type.")


def _type(node: ast.expr) -> Any:
    """The type that an annotation names."""
    match node:
        case ast.Name(name) if name in _PLAIN:
            return _PLAIN[name]
        case ast.Constant(None):
            return None
        case ast.BinOp(left, ast.BitOr(), right):
            return _type(left) | _type(right)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([item, ast.Constant(builtins.Ellipsis)])):
            return tuple[_type(item), ...]  # type: ignore[misc]
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(items)):
            return tuple[tuple(map(_type, items))]  # type: ignore[misc]
        case ast.Subscript(ast.Name("Literal"), choices):
            found = ast.literal_eval(choices)
            return Literal[found if isinstance(found, tuple) else (found,)]
    return Any


def described(value: object) -> str:
    """A value as messages give it."""
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else short(repr(value))


def _refusal(value: object, kind: Any) -> str:
    """What msgspec says of a value that is not of a type."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _wanted(message: str) -> str:
    """What a message of msgspec expects, in words."""
    if "matching regex" in message:
        return next(words for pattern, words in WORDS.items() if repr(pattern) in message)
    if "of length >= 1" in message:
        return "a list of one or more"
    if length := re.match(r"Expected `array` of length (\d+)", message):
        return f"a list of {length[1]}"
    types = re.match(r"Expected `(.*?)`, got", message)
    return " or ".join(_TYPES.get(name, name) for name in types[1].split(" | ")) if types else message


def _at(data: Any, keys: list[str | int]) -> Any:
    """The value that keys lead to."""
    for key in keys:
        data = data[key]
    return data


def _keys(data: dict[str, Any], kind: type[Table], message: str) -> list[str | int]:
    """The keys that lead to what a message of msgspec is about."""
    keys: list[str | int] = []
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", message.rpartition("`$")[2]):
        keys.append(name or (_culprit(data, keys, kind, message) if index == "..." else int(index)))
    return [*keys, _culprit(data, keys, kind, message)] if "`key` in" in message else keys


def _culprit(data: dict[str, Any], keys: list[str | int], kind: type[Table], message: str) -> str:
    """The key of a table that a message is about, which msgspec does not name: it says the same of this key alone."""
    table = _at(data, keys)
    every = dict(table)
    for key, value in every.items():
        table.clear()
        table[key] = value
        if _refusal(data, kind) == message:
            break
    table.clear()
    table.update(every)
    return key
