"""TOML files, with the lines on which their values stand."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic

import tomli_w

from generator.code.caching import cached
from generator.code.traced import Origin
from generator.errors import LoomError
from generator.recipe.typed import AnyTable, read_table

DEEPEST = 20  # tables and lists in each other; no file of ours comes near


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """Returns the tables of a text.

    Args:
        path: how the error names the file.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else max(len(text.splitlines()), 1)  # else it says "at end of document"
        raise LoomError(f"not valid TOML: {error}", f"{path}:{number}", "Fix the syntax of this line.") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits; or tables in tables in tables
        raise LoomError(f"not valid TOML: {error}", path, "Write shorter numbers and flatter tables.") from None
    if is_deep(tables):
        raise LoomError("nested too deeply", path, "Write it flatter.")
    return tables


def is_deep(value: object) -> bool:
    """Whether tables and lists stand in each other more often than anything here can walk through."""
    layer = [value]
    for _ in range(DEEPEST):
        values = [it.values() if isinstance(it, dict) else it for it in layer if isinstance(it, (dict, list))]
        layer = [inner for it in values for inner in it]
    return any(isinstance(it, (dict, list)) for it in layer)


@dataclass(frozen=True)
class Toml(Generic[AnyTable]):
    """A TOML file with the lines of its values.

    Attributes:
        kind: of file: what it may hold.
    """

    path: str
    text: str
    kind: type[AnyTable]

    @classmethod
    def read(cls, files: Mapping[str, str], path: str, kind: type[AnyTable]) -> Toml[AnyTable]:
        """Returns a file of a library."""
        if path not in files:
            raise LoomError("this file is missing", path, "Restore it.")
        return _read(path, files[path], kind)  # type: ignore[arg-type]  # a class is hashable

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The tables as they are."""
        return parse_toml(self.text, self.path)

    @cached_property
    def data(self) -> AnyTable:
        """The tables, as its kind of file holds them."""
        return read_table(self.kind, self.plain, self.path, lambda *keys: self.origin(*keys).line)

    def origin(self, *keys: str | int) -> Origin:
        """Returns the line of the value that these keys lead to, or else of the table that would hold it."""
        lines = lines_of(self.text)
        found = (lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines)
        return Origin(self.path, next(found, 1))


AnyFile = Toml[Any]


@cached
def _read(path: str, text: str, kind: Any) -> AnyFile:
    """Returns a file, whose tables are made once: most architectures have bases in common."""
    return Toml(path, text, kind)


def toml_text(tables: dict[str, Any], path: str) -> str:
    """Tables as TOML, which reads as they are.

    Args:
        path: of the file that it is for, for the error.
    """
    try:
        text = tomli_w.dumps(tables)
        same = text.encode() and tomllib.loads(text) == tables
    except (TypeError, ValueError, RecursionError) as error:
        raise LoomError(f"cannot be written as TOML: {error}", path, "Give a number, a text or a list.") from None
    if not same:
        message = "cannot be written as TOML: it would read back differently"
        raise LoomError(message, path, "Give numbers that are finite.")
    return text


@cached
def lines_of(text: str) -> dict[tuple[str | int, ...], int]:
    """Returns the keys and places that lead to each value of a TOML text -> the line on which it stands, or begins."""
    found: dict[tuple[str | int, ...], int] = {}
    last: dict[tuple[str | int, ...], int] = {}  # list of tables -> the last of them
    table: tuple[str | int, ...] = ()
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += f"{line}\n"
        if line.endswith(",") and "#" not in line:
            continue  # it goes on in the next line, as does what cannot be read
        try:
            value = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith("["):
            table = ()
            while value:
                ((key, value),) = value.items()
                table = (*table, key)
                found.setdefault(table, start)
                if isinstance(value, list):
                    last[table] = last.get(table, -1) + 1
                    value = value[0]
                if table in last:
                    table = (*table, last[table])
                    found.setdefault(table, start)
        else:
            _add(value, table, statement.split("\n"), start, found)
        statement, start = "", number + 1
    return found


def _add(value: Any, keys: tuple[str | int, ...], lines: list[str], start: int, found: dict) -> None:
    """Adds what stands in a value that begins on a line."""
    if isinstance(value, dict):
        for key, inner in value.items():
            found.setdefault((*keys, key), start)
            _add(inner, (*keys, key), lines, start, found)
    elif isinstance(value, list):
        at = 0
        for place, inner in enumerate(value):
            if isinstance(inner, str):
                after = (n for n in range(at, len(lines)) if f'"{inner}"' in lines[n] or f"'{inner}'" in lines[n])
                at = next(after, at)
            found[*keys, place] = start + at
            _add(inner, (*keys, place), lines, start, found)
