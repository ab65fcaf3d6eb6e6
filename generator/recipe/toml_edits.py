"""Changes of TOML files that people write, by tomlkit: comments, order and layout of the rest stay."""

from __future__ import annotations

import tomllib
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Table

from generator.errors import LoomError
from generator.recipe.toml import lines_of, parse_toml

WIDTH = 120


def set_value(table: Any, key: str, value: Any) -> None:
    """Sets a value of a table, or of a document; a new one comes below the last value, above comments at the end.

    A table to which tomlkit itself adds a value has it below those comments, which are about the table that follows.
    """
    if key in table or isinstance(table, InlineTable):
        table[key] = value
        return
    body = (table.value if isinstance(table, Table) else table).body
    values = [number for number, (name, item) in enumerate(body) if name and not isinstance(item, (Table, AoT))]
    body.insert(values[-1] + 1 if values else 0, (tomlkit.key(key), tomlkit.item(value)))


def add_to_list(text: str, path: str, table: tuple[str, ...], key: str, name: str) -> str:
    """Returns a TOML text with a string added to a list.

    Args:
        path: the file, for the error.
        table: the keys of the table that has the list, none for the top; a missing table is added at the end.
        key: the list.
    """
    expected: Any = parse_toml(text, path)
    inner = expected
    for word in table:
        inner = inner.setdefault(word, {})
    inner[key] = [*inner.get(key, []), name]
    try:
        changed = _add_to_list(text if text.endswith("\n") else f"{text}\n", table, key, name)
        if tomllib.loads(changed) == expected:
            return changed
    except (tomllib.TOMLDecodeError, TOMLKitError):
        pass
    numbers = lines_of(text)
    where = f"{path}:{numbers.get((*table, key), numbers.get(table, 1))}"
    head = f" under [{'.'.join(table)}]" if table else ""
    raise LoomError(f"gen cannot add to {key}{head}", where, f'Add "{name}" to it by hand.')


def _add_to_list(text: str, table: tuple[str, ...], key: str, name: str) -> str:
    document = tomlkit.parse(text)
    inner: Any = document
    for word in table:
        if word not in inner:
            return f'{text}\n[{".".join(table)}]\n{key} = ["{name}"]\n'
        inner = inner[word]
    if key not in inner:
        set_value(inner, key, [name])
        return tomlkit.dumps(document)
    inner[key].append(name)
    *lines_before, line = f"{key} = {inner[key].as_string()}".rstrip("] \n").split("\n")
    if len(line) > WIDTH and lines_before:
        inner[key].pop()
        inner[key].add_line(name)
    elif len(line) >= WIDTH:
        inner[key].multiline(True)
    return tomlkit.dumps(document)
