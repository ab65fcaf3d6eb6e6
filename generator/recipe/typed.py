"""Reads values of TOML files as the types that they are declared to be of; an error knows the keys that lead to it.

Dataclasses declare the tables (schema.py). No library does this here: pydantic, which says where an error is, takes
half a second to import, a third of what a build takes.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from generator.errors import LoomError, nearest, short
from generator.language.parts import Field

Keys = tuple[str | int, ...]
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str}
_WORDS: dict[Any, str] = {
    **{str: "a string", int: "an integer", float: "a number", bool: "true or false", NoneType: "nothing"},
    **{tuple: "a list", dict: "a table"},
}


class TomlTable:
    """A table that has the keys that its class declares, and no others; one without a default must be there."""

    def __init__(self, **values: Any):
        self.__dict__.update(values)


AnyTable = TypeVar("AnyTable", bound=TomlTable)


@dataclass(frozen=True)
class Shape:
    """A constraint on a string, or on a list.

    Attributes:
        words: what the value must be, for errors.
        pattern: of the string; without one, the list must have an item.
    """

    words: str
    pattern: str = ""

    def fits(self, value: Any) -> bool:
        return bool(re.fullmatch(self.pattern, value) if self.pattern else value)


class _Mismatch(Exception):
    """A value that is not as its type says, and the keys that lead to it."""

    def __init__(self, keys: Keys, message: str, remedy: str):
        self.keys, self.message, self.remedy = keys, message, remedy


def read_table(kind: type[AnyTable], data: dict[str, Any], path: str, line_of: Callable[..., int]) -> AnyTable:
    """Reads the tables of a file.

    Args:
        path: how the error names the file.
        line_of: the keys that lead to a value -> the line on which it stands.
    """
    try:
        return _read(kind, data, ())
    except _Mismatch as error:
        where = f"{path}:{line_of(*error.keys)}" if error.keys else path
        raise LoomError(error.message, where, error.remedy) from None


def check_value(member: Field, value: object, where: str) -> None:
    """Refuses a value that is not of the type of a field, and a number that is not finite."""
    for number in value if isinstance(value, tuple) else [value]:
        if isinstance(number, float) and not math.isfinite(number):
            raise LoomError(f"{member.name} is {number}", where, "Give a finite number.")
    if not is_of(member, value):
        message = f"{member.name} is {_described(value)}, and {member.fragment} has it as {member.kind}"
        raise LoomError(message, where, "Give a value of that type.")


def is_of(member: Field, value: object) -> bool:
    """Whether a value is of the type of a field; what is not known here may have any."""
    try:
        _read(_type(member.statement.annotation) if isinstance(member.statement, ast.AnnAssign) else Any, value, ())
    except _Mismatch:
        return False
    return True


def _type(node: ast.expr) -> Any:
    """Returns the type that an annotation names."""
    match node:
        case ast.Name(name) if name in _PLAIN:
            return _PLAIN[name]
        case ast.Constant(None):
            return NoneType
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


def _read(kind: Any, value: Any, keys: Keys) -> Any:
    """Returns a value as a type has it: lists as tuples, tables as dataclasses."""
    options, shape = _options(kind)
    chosen = next((option for option in options if _is_like(option, value)), None)
    if chosen is None:
        raise _wrong(keys, value, _words(kind))
    if shape and not shape.fits(value):
        raise _wrong(keys, value, shape.words)
    if _is_table(chosen):
        return _read_table(chosen, value, keys)
    base, inner = get_origin(chosen), get_args(chosen)
    if base is dict:
        return {_read(inner[0], key, (*keys, key)): _read(inner[1], it, (*keys, key)) for key, it in value.items()}
    if base is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is builtins.Ellipsis else inner
        if len(kinds) != len(value):
            raise _wrong(keys, value, f"a list of {len(kinds)}")
        return tuple(_read(one, it, (*keys, n)) for n, (one, it) in enumerate(zip(kinds, value, strict=True)))
    return value


def _read_table(kind: Any, table: dict[str, Any], keys: Keys) -> TomlTable:
    types = _types(kind)
    for key in table:
        if key not in types:
            raise _Mismatch((*keys, key), f"unknown key {_shown((*keys, key))}", nearest(key, types))
    for key in types:
        if key not in table and not hasattr(kind, key):
            raise _Mismatch(keys, f"{_shown((*keys, key))} is missing", f"Add {key}, {_words(types[key])}.")
    return kind(**{key: _read(types[key], value, (*keys, key)) for key, value in table.items()})


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _options(kind: Any) -> tuple[tuple[Any, ...], Shape | None]:
    """Returns the types of a union, or the one that it is, and what else is asked of values."""
    plain, shape = get_args(kind) if get_origin(kind) is Annotated else (kind, None)
    return get_args(plain) if get_origin(plain) in (Union, UnionType) else (plain,), shape


def _is_like(kind: Any, value: object) -> bool:
    """Whether a value is of a type, whatever is in it."""
    if get_origin(kind) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(kind))
    base = _base(kind)
    types: Any = {Any: object, float: (int, float), tuple: (tuple, list)}.get(base, base)
    return isinstance(value, types) and (base in (bool, Any) or not isinstance(value, bool))


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, TomlTable)


def _base(kind: Any) -> Any:
    return dict if _is_table(kind) else get_origin(kind) or kind


def _words(kind: Any) -> str:
    """Returns what a type is called in errors."""
    return " or ".join(_WORDS.get(_base(option), str(option)) for option in _options(kind)[0])


def _wrong(keys: Keys, value: object, expected: str) -> _Mismatch:
    return _Mismatch(keys, f"{_shown(keys)} is {_described(value)}, not {expected}", f"Give {expected}.")


def _shown(keys: Keys) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def _described(value: object) -> str:
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else short(repr(value))
