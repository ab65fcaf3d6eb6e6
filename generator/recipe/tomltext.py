"""The text of a TOML file: its tables, and the lines on which its values stand."""

from __future__ import annotations

import math
import re
import tomllib
from typing import Any

from generator.code.memory import remembered
from generator.errors import LoomError

DEEPEST = 20  # tables and lists in each other; no file of ours comes near


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """The tables of a text.

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
    if keys := _infinite(tables):
        name = ".".join(map(str, keys))
        where = f"{path}:{lines_of(text).get(keys, 1)}"
        raise LoomError(f"{name} is no finite number", where, "Write one that is neither infinite nor nan.")
    return tables


def _infinite(value: object, keys: tuple[str | int, ...] = ()) -> tuple[str | int, ...]:
    """The keys that lead to a number which is infinite or nan; none where there is none."""
    if isinstance(value, float):
        return () if math.isfinite(value) else keys
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next((found for key, one in inner if (found := _infinite(one, (*keys, key)))), ())


def is_deep(value: object) -> bool:
    """Whether tables and lists stand in each other more often than anything here can walk through."""
    layer = [value]
    for _ in range(DEEPEST):
        values = [it.values() if isinstance(it, dict) else it for it in layer if isinstance(it, (dict, list))]
        layer = [inner for it in values for inner in it]
    return any(isinstance(it, (dict, list)) for it in layer)


@remembered
def lines_of(text: str) -> dict[tuple[str | int, ...], int]:
    """The keys and places that lead to each value of a TOML text -> the line on which it stands, or begins."""
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
