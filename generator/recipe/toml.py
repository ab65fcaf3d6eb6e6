"""TOML files, with errors that name the line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic

import tomli_w

from generator.code.memory import remembered
from generator.code.traced import Origin
from generator.errors import LoomError
from generator.recipe.tomltext import lines_of, parse_toml
from generator.recipe.typed import AnyTable, typed


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
        """A file of a library."""
        if path not in files:
            raise LoomError("this file is missing", path, "Restore it.")
        return _read(path, files[path], kind)

    @cached_property
    def data(self) -> AnyTable:
        """The tables."""
        return typed(parse_toml(self.text, self.path), self.kind, self.path, lambda *keys: self.origin(*keys).line)

    def origin(self, *keys: str | int) -> Origin:
        """The line on which the value stands that these keys lead to, or else the table that it would stand in."""
        lines = lines_of(self.text)
        found = (lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines)
        return Origin(self.path, next(found, 1))


AnyFile = Toml[Any]


@remembered
def _read(path: str, text: str, kind: type[AnyTable]) -> Toml[AnyTable]:
    """A file, whose tables are made once: most architectures have bases in common."""
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
        raise LoomError(
            "cannot be written as TOML: it would read back differently", path, "Give numbers that are finite."
        )
    return text
