"""A woven package together with the fragments that its lines came from."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from generator.code.traced import Origin
from generator.package.package import Package
from generator.pull.edited import Hunk


def indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def shifted(lines: Sequence[str], by: int) -> tuple[str, ...]:
    """Moves lines to the right, or to the left as far as each goes."""
    return tuple(" " * by + line[max(min(-by, indent(line)), 0) :] if line.strip() else line for line in lines)


class PackageSources:
    """A package and the texts that it is woven from.

    Attributes:
        texts: of all sources, by path.
        lines: of each file of the package, the last one empty where the file ends in a newline.
    """

    def __init__(self, package: Package, texts: dict[str, str]):
        self.package, self.texts = package, texts
        self.lines = {path: text.split("\n") for path, text in package.files.items()}
        self._sources: dict[str, list[str]] = {}
        self._imports: dict[str, tuple[int, int]] = {}

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

    def text_at(self, origin: Origin) -> str:
        return self.source(origin.path)[origin.line - 1]

    def copied(self, path: str, line: int) -> tuple[str, int] | None:
        """Gives the source line, from 0, that a line is a copy of, whatever its indentation."""
        if not 0 <= line < len(self.lines[path]):
            return None
        text = self.lines[path][line].strip()
        if text:
            same = (origin for origin in self.origins(path, line) if self.text_at(origin).strip() == text)
            return next(((origin.path, origin.line - 1) for origin in same), None)
        above = next((n for n in range(line - 1, -1, -1) if self.lines[path][n].strip()), -1)
        found = self.copied(path, above) if above >= 0 else None
        if found is None:
            return None
        source, number = self.source(found[0]), found[1] + line - above
        blank = number < len(source) and not any(source[n].strip() for n in range(found[1] + 1, number + 1))
        return (found[0], number) if blank else None

    def places(self, source: tuple[str, int]) -> list[str]:
        """The places where a source line, from 0, is copied, as FILE:LINE."""
        rows = ((path, row) for path in self.package.origins for row in range(len(self.lines[path])))
        return [f"{path}:{row + 1}" for path, row in rows if self.copied(path, row) == source]

    def head(self, path: str) -> int:
        """The number of lines above the first definition: comments, the docstring, imports."""
        return self._import_lines(path)[1]

    def _import_lines(self, path: str) -> tuple[int, int]:
        """The first line of the imports, from 0, and the one after the last."""
        if path not in self._imports:
            body = ast.parse(self.package.files[path]).body
            nodes = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
            first = min((node.lineno - 1 for node in nodes), default=0)
            self._imports[path] = first, max((node.end_lineno or 0 for node in nodes), default=0)
        return self._imports[path]

    def is_made_by_gen(self, hunk: Hunk) -> bool:
        """Tells whether these lines follow from others, so that no line of a fragment makes them."""
        if hunk.path not in self.package.origins or hunk.path.endswith("__init__.py"):
            return True
        first, head = self._import_lines(hunk.path)
        imports = all(
            not line.strip() or line.startswith(("import ", "from ", "    ", ")", "#")) for line in hunk.lines
        )
        in_head = hunk.stop <= head or (hunk.start == hunk.stop == head)
        documented = any(self.origins(hunk.path, row) for row in range(hunk.start, hunk.stop))
        return in_head and ((imports and first <= hunk.start) or not documented)
