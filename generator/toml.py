"""TOML files, with errors that name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from generator.errors import LoomError
from generator.tomlkeys import check_tables
from generator.traced import Origin

if TYPE_CHECKING:
    from generator.library import Library


def parse_toml(text: str, path: str) -> dict:
    """The tables of a text.

    Args:
        path: how the error names the file.

    Raises:
        LoomError: the text is not TOML; the line is named.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else max(len(text.splitlines()), 1)  # else it says "at end of document"
        raise LoomError(f"not valid TOML: {error}", f"{path}:{number}", "Mend the syntax of this line.") from None
    except RecursionError:
        raise LoomError("nested too deeply", path, "Write it flatter.") from None


@dataclass(frozen=True)
class Toml:
    """A TOML file with the lines of its keys."""

    path: str
    text: str
    kind: str

    @classmethod
    def read(cls, library: Library, path: str, kind: str) -> Toml:
        """A file of a library.

        Args:
            kind: of file: architecture, target or package.

        Raises:
            LoomError: there is none.
        """
        if path not in library.files:
            raise LoomError("this file is missing", path, "Restore it.")
        return cls(path, library.files[path], kind)

    @cached_property
    def data(self) -> dict:
        """The tables.

        Raises:
            LoomError: the text is not TOML, or not what its kind of file holds.
        """
        data = parse_toml(self.text, self.path)
        check_tables(data, self.kind, self.path, lambda key: self.origin(key).line)
        for name, kind in (("structure", "rule"), ("neutral", "neutral table")):
            for index, table in enumerate(data.get(name, ())):
                check_tables(table, kind, self.path, self._lines_from(name, self.line_of_table(name, index)))
        return data

    def _lines_from(self, table: str, after: int) -> Callable[[str], int]:
        """Key of a table that begins on a line -> its own line."""
        return lambda key: self.origin(key, table, after).line

    def line_of_table(self, name: str, index: int) -> int:
        """The line of the header of a table in the list `name`."""
        lines = enumerate(self.text.splitlines(), start=1)
        headers = [number for number, line in lines if re.match(rf"\s*\[\[\s*{name}\s*\]\]", line)]
        return headers[index] if index < len(headers) else self.origin(name).line  # it is written inline

    def origin(self, key: str, table: str = "", after: int = 0) -> Origin:
        """The line on which `key` stands in `[table]`, or the line of the table.

        Args:
            after: the first line that counts, as a file may have several tables of a name.
        """
        current, found = "", 0
        for number, line in list(enumerate(self.text.splitlines(), start=1))[max(after - 1, 0) :]:
            header = re.match(r"\s*\[+([^\]]+)\]+", line)
            if header:
                current = re.sub(r"[\"' ]", "", header[1])
                if table and current == f"{table}.{key}":
                    return Origin(self.path, number)
                if current in (table, key):
                    found = found or number
            elif current == table and re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", line):
                return Origin(self.path, number)
        return Origin(self.path, found or max(after, 1))
