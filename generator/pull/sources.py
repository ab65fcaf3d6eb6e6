"""Relates the lines of a woven package to those of its fragments."""

from __future__ import annotations

import ast

from generator.code.traced import Origin
from generator.package.package import Package
from generator.pull.edits import Hunk


class PackageSources:
    """A package and the texts that it is woven from.

    Attributes:
        texts: source path -> text.
        lines: path in the package -> lines; the last one is empty if the file ends in a newline.
    """

    def __init__(self, package: Package, texts: dict[str, str]):
        self.package, self.texts = package, texts
        self.lines = {path: text.split("\n") for path, text in package.files.items()}
        self._sources: dict[str, list[str]] = {}
        self._imports: dict[str, tuple[int, int]] = {}

    def source(self, path: str) -> list[str]:
        """Returns the lines of a source file."""
        if path not in self._sources:
            self._sources[path] = self.texts[path].split("\n")
        return self._sources[path]

    def origins(self, path: str, row: int) -> list[Origin]:
        """Returns the fragment lines from which a row of a package file was woven."""
        segments = self.package.origins.get(path, [])
        origins = [origin for _, origin in segments[row]] if 0 <= row < len(segments) else []
        return [origin for origin in dict.fromkeys(origins) if origin.path.startswith("fragments/")]

    def text_at(self, origin: Origin) -> str:
        return self.source(origin.path)[origin.line - 1]

    def copied_from(self, path: str, row: int) -> tuple[str, int] | None:
        """Returns path and row of the source line that a row copies, regardless of indentation; None if there is none.

        A blank row counts as a copy of the blank line at the same distance below the source of the text above it.
        """
        if not 0 <= row < len(self.lines[path]):
            return None
        text = self.lines[path][row].strip()
        if text:
            same = (origin for origin in self.origins(path, row) if self.text_at(origin).strip() == text)
            return next(((origin.path, origin.line - 1) for origin in same), None)
        above = next((n for n in range(row - 1, -1, -1) if self.lines[path][n].strip()), -1)
        original = self.copied_from(path, above) if above >= 0 else None
        if original is None:
            return None
        source, number = self.source(original[0]), original[1] + row - above
        is_blank = number < len(source) and not any(source[n].strip() for n in range(original[1] + 1, number + 1))
        return (original[0], number) if is_blank else None

    def copies(self, source: tuple[str, int]) -> list[str]:
        """Returns FILE:LINE of each copy of a source row."""
        rows = ((path, row) for path in self.package.origins for row in range(len(self.lines[path])))
        return [f"{path}:{row + 1}" for path, row in rows if self.copied_from(path, row) == source]

    def imports_end(self, path: str) -> int:
        """Returns the row below the imports of a file, 0 if it has none."""
        return self._import_rows(path)[1]

    def _import_rows(self, path: str) -> tuple[int, int]:
        """Returns the first row of the imports, and the one after the last."""
        if path not in self._imports:
            body = ast.parse(self.package.files[path]).body
            nodes = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
            first = min((node.lineno - 1 for node in nodes), default=0)
            self._imports[path] = first, max((node.end_lineno or 0 for node in nodes), default=0)
        return self._imports[path]

    def is_derived(self, hunk: Hunk) -> bool:
        """Returns whether gen derives the edited lines from others, so that no line of a fragment makes them."""
        if hunk.path not in self.package.origins or hunk.path.endswith("__init__.py"):
            return True
        first, end = self._import_rows(hunk.path)
        starts = ("import ", "from ", "    ", ")", "#")
        only_imports = all(not line.strip() or line.startswith(starts) for line in hunk.lines)
        above_code = hunk.stop <= end or (hunk.start == hunk.stop == end)
        from_fragment = any(self.origins(hunk.path, row) for row in range(hunk.start, hunk.stop))
        return above_code and ((only_imports and first <= hunk.start) or not from_fragment)
