"""Converts values of TOML files to their declared types (schema.py); an error has the keys of the wrong value.

No library does this: pydantic, whose errors have keys too, takes half a second to import, a third of a build.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from generator.code.traced import Origin
from generator.errors import LoomError, nearest, short
from generator.language.numbers import read_number
from generator.language.parts import Field

Keys = tuple[str | int, ...]
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str}
_WORDS: dict[Any, str] = {
    **{str: "a string", int: "an integer", float: "a number", bool: "true or false", NoneType: "nothing"},
    **{tuple: "a list", dict: "a table"},
}


class TomlTable:
    """A table with the keys that its class annotates, and no others. A key without a default is required."""

    def __init__(self, line_of: Callable[..., Origin] | None = None, plain: Any = None, /, **values: Any):
        self.__dict__.update(values)
        self._line_of = line_of
        self.plain: dict[str, Any] = plain or {}  # as TOML has it

    def origin(self, *keys: str | int) -> Origin:
        """Returns the line of the value with these keys in the table, or of the innermost table on the way to it."""
        return self._line_of(*keys) if self._line_of else Origin("", 1)


AnyTable = TypeVar("AnyTable", bound=TomlTable)


@dataclass(frozen=True)
class Shape:
    """A constraint on a string, or on a list.

    Attributes:
        words: describe a value that fits, for errors.
        pattern: a regular expression for the string; without one, the list must have an item.
    """

    words: str
    pattern: str = ""

    def fits(self, value: Any) -> bool:
        return bool(re.fullmatch(self.pattern, value) if self.pattern else value)


class _Mismatch(Exception):
    """A value that does not have its declared type, with its keys."""

    def __init__(self, keys: Keys, message: str, remedy: str):
        self.keys, self.message, self.remedy = keys, message, remedy


def read_table(kind: type[AnyTable], data: dict[str, Any], line_of: Callable[..., Origin]) -> AnyTable:
    """Converts the tables of a file to their class.

    Args:
        line_of: keys of a value -> its line.
    """
    try:
        return _convert(kind, data, (), line_of)
    except _Mismatch as error:
        origin = line_of(*error.keys)
        raise LoomError(error.message, str(origin) if error.keys else origin.path, error.remedy) from None


def check_value(member: Field, value: object, where: str) -> None:
    """Refuses a value that does not have the type of a field, and a number that is not finite or out of bounds."""
    for number in value if isinstance(value, tuple) else [value]:
        if isinstance(number, float) and not math.isfinite(number):
            raise LoomError(f"{member.name} is {number}", where, "Give a finite number.")
    if not has_type(member, value):
        message = f"{member.name} is {_describe(value)}, and {member.fragment} declares it as {member.kind}"
        raise LoomError(message, where, "Give a value of that type.")
    _, least, most = member.number or (float, -math.inf, math.inf)
    if isinstance(value, int | float) and not least <= value <= most:
        raise LoomError(f"{member.name} is {value}", where, f"Give a number from {least:,} to {most:,}.")


def has_type(member: Field, value: object) -> bool:
    """Returns whether a value has the type of a field, True for an annotation that is not known here."""
    try:
        if isinstance(member.statement, ast.AnnAssign):
            _convert(_read_annotation(member.statement.annotation), value)
    except _Mismatch:
        return False
    return True


def _read_annotation(node: ast.expr) -> Any:
    """Returns the type that an annotation names, Any for an unknown one."""
    if number := read_number(node):
        return number[0]
    match node:
        case ast.Name(name) if name in _PLAIN:
            return _PLAIN[name]
        case ast.Constant(None):
            return NoneType
        case ast.BinOp(left, ast.BitOr(), right):
            return _read_annotation(left) | _read_annotation(right)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([item, ast.Constant(builtins.Ellipsis)])):
            return tuple[_read_annotation(item), ...]  # type: ignore[misc]
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(items)):
            return tuple[tuple(map(_read_annotation, items))]  # type: ignore[misc]
        case ast.Subscript(ast.Name("Literal"), choices):
            values = ast.literal_eval(choices)
            return Literal[values if isinstance(values, tuple) else (values,)]
    return Any


def _convert(kind: Any, value: Any, keys: Keys = (), line_of: Callable[..., Origin] | None = None) -> Any:
    """Returns a value converted to a type: lists to tuples, tables to classes.

    Raises:
        _Mismatch: the value does not have the type.
    """
    options, shape = _split_union(kind)
    chosen = next((option for option in options if _has_base(option, value)), None)
    if chosen is None:
        raise _mismatch(keys, value, _describe_type(kind))
    if shape and not shape.fits(value):
        raise _mismatch(keys, value, shape.words)
    if _is_table(chosen):
        return _convert_table(chosen, value, keys, line_of)
    base, inner = get_origin(chosen), get_args(chosen)
    if base is dict:
        items = [(key, (*keys, key), item) for key, item in value.items()]
        return {_convert(inner[0], key, at): _convert(inner[1], item, at, line_of) for key, at, item in items}
    if base is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is builtins.Ellipsis else inner
        if len(kinds) != len(value):
            raise _mismatch(keys, value, f"a list of {len(kinds)}")
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(_convert(kind, item, (*keys, number), line_of) for number, (kind, item) in pairs)
    return value


def _convert_table(kind: Any, table: dict[str, Any], keys: Keys, line_of: Callable[..., Origin] | None) -> TomlTable:
    types = _types(kind)
    for key in table:
        if key not in types:
            raise _Mismatch((*keys, key), f"unknown key {_format_keys((*keys, key))}", nearest(key, types))
    for key in types:
        if key not in table and not hasattr(kind, key):
            message = f"{_format_keys((*keys, key))} is missing"
            raise _Mismatch(keys, message, f"Add {key}, {_describe_type(types[key])}.")
    values = {key: _convert(types[key], value, (*keys, key), line_of) for key, value in table.items()}
    return kind(line_of and partial(line_of, *keys), table, **values)


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _split_union(kind: Any) -> tuple[tuple[Any, ...], Shape | None]:
    """Returns the types of a union, or the type itself, and the constraint on values."""
    plain, shape = get_args(kind) if get_origin(kind) is Annotated else (kind, None)
    return get_args(plain) if get_origin(plain) in (Union, UnionType) else (plain,), shape


def _has_base(kind: Any, value: object) -> bool:
    """Returns whether a value has a type, apart from its items."""
    if get_origin(kind) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(kind))
    base = _base(kind)
    types: Any = {Any: object, float: (int, float), tuple: (tuple, list)}.get(base, base)
    return isinstance(value, types) and (base in (bool, Any) or not isinstance(value, bool))


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, TomlTable)


def _base(kind: Any) -> Any:
    return dict if _is_table(kind) else get_origin(kind) or kind


def _describe_type(kind: Any) -> str:
    return " or ".join(_WORDS.get(_base(option), str(option)) for option in _split_union(kind)[0])


def _mismatch(keys: Keys, value: object, expected: str) -> _Mismatch:
    return _Mismatch(keys, f"{_format_keys(keys)} is {_describe(value)}, not {expected}", f"Give {expected}.")


def _format_keys(keys: Keys) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def _describe(value: object) -> str:
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else short(repr(value))
