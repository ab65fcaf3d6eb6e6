"""TOML files: their values, and the lines of these."""

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

MAX_DEPTH = 20  # of nested tables and lists; no file of ours comes near


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """Returns the tables of a text.

    Args:
        path: the file, for the error.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else max(len(text.splitlines()), 1)  # "at end of document"
        raise LoomError(f"not valid TOML: {error}", f"{path}:{number}", "Fix the syntax of this line.") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits; or tables in tables in tables
        where = f"{path}:{_deepest_line(text)}"
        raise LoomError(f"not valid TOML: {error}", where, "Write shorter numbers and flatter tables.") from None
    if is_deep(tables):
        raise LoomError("nested too deeply", f"{path}:{_deepest_line(text)}", "Write it flatter.")
    return tables


def _deepest_line(text: str) -> int:
    """Returns the line with the deepest brackets and dotted keys, the longest of these: where to look."""
    depth, best = 0, (0, 0, 1)
    for number, line in enumerate(text.split("\n"), 1):
        best = max(best, (depth + len(re.findall(r"[\[{.]", line)), len(line), number))
        depth += len(re.findall(r"[\[{]", line)) - len(re.findall(r"[\]}]", line))
    return best[2]


def is_deep(value: object) -> bool:
    """Returns whether tables and lists are nested more deeply than recursion here can walk."""
    layer = [value]
    for _ in range(MAX_DEPTH):
        containers = [item for item in layer if isinstance(item, (dict, list))]
        layer = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
    return any(isinstance(item, (dict, list)) for item in layer)


@dataclass(frozen=True)
class Toml(Generic[AnyTable]):
    """A TOML file with the lines of its values.

    Attributes:
        kind: the class of its tables.
    """

    path: str
    text: str
    kind: type[AnyTable]

    @classmethod
    def read(cls, files: Mapping[str, str], path: str, kind: type[AnyTable]) -> Toml[AnyTable]:
        """Returns a file of a library."""
        if path not in files:
            raise LoomError("this file is missing", path, "Restore it.")
        return _make(path, files[path], kind)  # type: ignore[arg-type]  # a class is hashable

    @cached_property
    def data(self) -> AnyTable:
        """The tables, converted to their class."""
        return read_table(self.kind, parse_toml(self.text, self.path), self.origin)

    def origin(self, *keys: str | int) -> Origin:
        """Returns the line of the value with these keys, or of the innermost table on the way to it."""
        lines = lines_of(self.text)
        present = (lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines)
        return Origin(self.path, next(present, 1))


AnyFile = Toml[Any]


@cached
def _make(path: str, text: str, kind: Any) -> AnyFile:
    """Returns a file, read once: architectures share bases."""
    return Toml(path, text, kind)


def toml_text(tables: dict[str, Any], path: str) -> str:
    """Returns tables as TOML that reads back as the same tables.

    Args:
        path: the file to write, for the error.
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
    """Returns the keys of each value of a TOML text -> the line on which it begins. An item of a list has a number."""
    lines: dict[tuple[str | int, ...], int] = {}
    last: dict[tuple[str | int, ...], int] = {}  # list of tables -> number of the last one
    table: tuple[str | int, ...] = ()
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += f"{line}\n"
        if line.endswith(",") and "#" not in line:
            continue  # the statement goes on, as does one that cannot be parsed yet
        try:
            value = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith("["):
            table = ()
            while value:
                ((key, value),) = value.items()
                table = (*table, key)
                lines.setdefault(table, start)
                if isinstance(value, list):
                    last[table] = last.get(table, -1) + 1
                    value = value[0]
                if table in last:
                    table = (*table, last[table])
                    lines.setdefault(table, start)
        else:
            _add_lines(value, table, statement.split("\n"), start, lines)
        statement, start = "", number + 1
    return lines


def _add_lines(value: Any, keys: tuple[str | int, ...], statement: list[str], start: int, lines: dict) -> None:
    """Adds the lines of the items of a value whose statement begins at `start`."""
    if isinstance(value, dict):
        for key, item in value.items():
            lines.setdefault((*keys, key), start)
            _add_lines(item, (*keys, key), statement, start, lines)
    elif isinstance(value, list):
        row = 0
        for number, item in enumerate(value):
            if isinstance(item, str):
                rows = (
                    n for n in range(row, len(statement)) if re.search(f"[\"']{re.escape(item)}[\"']", statement[n])
                )
                row = next(rows, row)
            lines[*keys, number] = start + row
            _add_lines(item, (*keys, number), statement, start, lines)
