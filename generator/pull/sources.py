"""A woven package together with the fragments that its lines came from."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import NamedTuple

from generator.code.traced import Origin
from generator.package.package import Package


class Change(NamedTuple):
    """Lines of a source file that are replaced.

    Attributes:
        start, stop: from 0; none where lines are inserted.
    """

    path: str
    start: int
    stop: int
    lines: tuple[str, ...]

    def overlaps(self, other: Change) -> bool:
        """Whether the two cannot both be made, or are one."""
        if self.path != other.path:
            return False
        if self.start == self.stop or other.start == other.stop:
            return self[1:3] == other[1:3]
        return self.start < other.stop and other.start < self.stop


def apply(text: str, changes: set[Change]) -> str:
    """A source text with changes made."""
    lines = text.split("\n")
    for change in sorted(changes, key=lambda change: (change.start, change.stop), reverse=True):
        lines[change.start : change.stop] = change.lines
    return "\n".join(lines)


def indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def shifted(lines: tuple[str, ...] | list[str], by: int) -> tuple[str, ...]:
    """Lines moved to the right, or to the left as far as each goes."""
    return tuple(" " * by + line[max(min(-by, indent(line)), 0) :] if line.strip() else line for line in lines)


class Woven:
    """What was woven, and from what.

    Attributes:
        package: as it is woven from the texts.
        texts: of all sources, by path.
        lines: of each file of the package, the last one empty where the file ends in a newline.
    """

    def __init__(self, package: Package, texts: dict[str, str]):
        self.package, self.texts = package, texts
        self.lines = {path: text.split("\n") for path, text in package.files.items()}
        self._sources: dict[str, list[str]] = {}

    def source(self, path: str) -> list[str]:
        """The lines of a source file."""
        if path not in self._sources:
            self._sources[path] = self.texts[path].split("\n")
        return self._sources[path]

    def origins(self, path: str, line: int) -> list[Origin]:
        """The fragment lines that a line came from."""
        segments = self.package.origins.get(path, [])
        found = [origin for _, origin in segments[line]] if 0 <= line < len(segments) else []
        return [origin for origin in dict.fromkeys(found) if origin.path.startswith("fragments/")]

    def copied(self, path: str, line: int) -> tuple[str, int] | None:
        """Gives the source line, from 0, that a line is a copy of, whatever its indentation."""
        if not 0 <= line < len(self.lines[path]):
            return None
        text = self.lines[path][line].strip()
        if text:
            for origin in self.origins(path, line):
                if self.source(origin.path)[origin.line - 1].strip() == text:
                    return origin.path, origin.line - 1
            return None
        above = next((n for n in range(line - 1, -1, -1) if self.lines[path][n].strip()), -1)
        found = self.copied(path, above) if above >= 0 else None
        if found is None:
            return None
        source, number = self.source(found[0]), found[1] + line - above
        blank = number < len(source) and not any(source[n].strip() for n in range(found[1] + 1, number + 1))
        return (found[0], number) if blank else None

    @cached_property
    def places(self) -> dict[tuple[str, int], list[tuple[str, int]]]:
        """Of each source line, from 0, where it is woven: the first line of each place, from 1."""
        found: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for path in self.package.origins:
            above: tuple[str, int] | None = None
            head = self.head(path)
            for number, text in enumerate(self.lines[path]):
                if not text.strip() or number < head:
                    continue
                origin = next(iter(self.origins(path, number)), None)
                source = self.copied(path, number) or ((origin.path, origin.line - 1) if origin else None)
                if source and source != above:
                    found.setdefault(source, []).append((path, number + 1))
                above = source
        return found

    def head(self, path: str) -> int:
        """How many lines stand above the first definition: comments, the docstring, imports."""
        return max((node.end_lineno or 0 for node in self._imports(path)), default=0)

    def first_import(self, path: str) -> int:
        """The first line of an import, from 0."""
        return min((node.lineno - 1 for node in self._imports(path)), default=0)

    def _imports(self, path: str) -> list[ast.stmt]:
        body = ast.parse(self.package.files[path]).body
        return [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
