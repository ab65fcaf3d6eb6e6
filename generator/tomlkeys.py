"""What the TOML files of architectures, targets and packages may hold."""

from __future__ import annotations

from collections.abc import Callable

from generator.errors import LoomError, nearest

_NAMES = "a list of strings"
_TEXT = "a string"
_TEXTS = "a table of strings"
_TABLE = "a table"
_LISTS = "a table of lists of strings"
_TABLES = "a table of tables"
_TABLE_LIST = "a list of tables"
_BOOLEAN = "true or false"
_ANY = "a value"
_TEXT_OR_NAMES = "a string or a list of strings"
_CONFIG = "a table with a `documentation` of its own"

_KEYS = {
    "architecture": {
        "title": _TEXT, "base": _TEXT, "source": _TEXT, "model_type": _TEXT, "reference": _TEXT, "fragments": _NAMES,
        "without": _NAMES, "without_presets": _NAMES, "settings": _TABLE, "presets": _TABLES, "layers": _TABLE_LIST,
        "kinds": _TABLES, "targets": _TABLES, "structure": _TABLE_LIST, "neutral": _TABLE_LIST,
    },
    "target": {
        "title": _TEXT, "fragments": _NAMES, "settings": _TABLE, "presets": _TABLES, "requirements": _TEXTS,
        "extras": _LISTS, "templates": _TEXTS,
    },
    "package": {
        "fragments": _NAMES, "exports": _NAMES, "folders": _TEXTS, "documentation": _TEXTS, "config": _CONFIG,
        "requirements": _TEXTS, "extras": _LISTS, "templates": _TEXTS, "settings": _TABLE, "structure": _TABLE_LIST,
        "neutral": _TABLE_LIST,
    },
    "rule": {
        "setting": _TEXT_OR_NAMES, "value": _ANY, "given": _BOOLEAN, "without": _NAMES, "fragments": _NAMES,
        "settings": _TABLE, "fills": _TEXTS, "layers": _TABLE_LIST, "kinds": _TABLES, "presets": _TABLES,
    },
    "neutral table": {"settings": _NAMES, "where": _TEXT},
}  # fmt: skip
_FILES = ("architecture", "target", "package")  # the other kinds are tables in them
_REQUIRED = {
    "architecture": ("title",),
    "target": ("title",),
    "package": ("exports", "folders", "documentation", "config"),
    "rule": ("setting",),
    "neutral table": ("settings",),
}


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_table_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(check(item) for item in value.values())


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_config(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("documentation"), str):
        return False
    return set(value) <= {"documentation", "groups"} and _is_table_of(_is_text)(value.get("groups", {}))


_CHECKS: dict[str, Callable[[object], bool]] = {
    _NAMES: _is_names,
    _TEXT: _is_text,
    _TEXTS: _is_table_of(_is_text),
    _TABLE: _is_table,
    _LISTS: _is_table_of(_is_names),
    _TABLES: _is_table_of(_is_table),
    _TABLE_LIST: _is_tables,
    _BOOLEAN: lambda value: isinstance(value, bool),
    _ANY: lambda value: True,
    _TEXT_OR_NAMES: lambda value: _is_text(value) or _is_names(value),
    _CONFIG: _is_config,
}


def check_tables(data: dict, kind: str, path: str, line_of: Callable[[str], int]) -> None:
    """Refuses a table with a key that is unknown, missing or of the wrong type.

    Args:
        data: the tables of the file.
        kind: of file, or of table in it: a key of `_KEYS`.
        path: of the file, for the error.
        line_of: key -> the line on which it stands, or that of the table.

    Raises:
        LoomError: it names the key, its line and what belongs there.
    """
    for key, value in data.items():
        where = f"{path}:{line_of(key)}"
        if key not in _KEYS[kind]:
            raise LoomError(f"unknown key {key!r} in this {kind}", where, nearest(key, _KEYS[kind]))
        wanted = _KEYS[kind][key]
        if not _CHECKS[wanted](value):
            raise LoomError(f"{key} is {_described(value)}, not {wanted}", where, f"Give {wanted}.")
    for key in _REQUIRED[kind]:
        if key not in data:
            where = path if kind in _FILES else f"{path}:{line_of(key)}"
            raise LoomError(f"this {kind} has no {key}", where, f"Add {key}, {_KEYS[kind][key]}.")


def _described(value: object) -> str:
    if isinstance(value, dict):
        return "another table" if value else "an empty table"
    return "another list" if isinstance(value, list) else repr(value)
