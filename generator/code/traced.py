"""Text that knows where each character came from.

Weaving copies stretches of source and inserts small ones. A `Traced` text keeps the file and line of every stretch
through slicing, joining and editing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple


class Origin(NamedTuple):
    """A line of a source file."""

    path: str  # relative to the root that holds fragments/, templates/ and targets/, with forward slashes
    line: int  # from 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Piece(NamedTuple):
    """A stretch of text. Copied text moves on a source line with each newline; inserted text has one cause."""

    text: str
    origin: Origin  # of its first character
    copied: bool = True

    def origin_at(self, offset: int) -> Origin:
        if not self.copied:
            return self.origin
        return Origin(self.origin.path, self.origin.line + self.text.count("\n", 0, offset))

    def slice(self, start: int, end: int) -> Piece:
        return Piece(self.text[start:end], self.origin_at(start), self.copied)


def line_starts(text: str) -> list[int]:
    """Returns the offset of each line, and that of the end. Only a newline ends a line: a form feed does not."""
    starts = [0, *(newline.end() for newline in re.finditer("\n", text))]
    return starts if starts[-1] == len(text) else [*starts, len(text)]


class Edit(NamedTuple):
    """Replaces text[start:end]; an insertion has start == end."""

    start: int
    end: int
    new: Traced


@dataclass(frozen=True)
class Traced:
    """An immutable text made of pieces."""

    pieces: tuple[Piece, ...] = ()

    @classmethod
    def copy(cls, text: str, path: str, line: int = 1) -> Traced:
        """Returns text that `path` contains from `line` on."""
        return cls((Piece(text, Origin(path, line)),)) if text else cls()

    @classmethod
    def insert(cls, text: str, cause: Origin) -> Traced:
        """Returns text that no source contains, with the source line that caused it."""
        return cls((Piece(text, cause, copied=False),)) if text else cls()

    @classmethod
    def join(cls, parts: Iterable[Traced]) -> Traced:
        return cls(tuple(piece for part in parts for piece in part.pieces))

    @cached_property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of each piece, and that of the end."""
        return [*accumulate((len(piece.text) for piece in self.pieces), initial=0)]

    def __add__(self, other: Traced) -> Traced:
        return Traced(self.pieces + other.pieces)

    def __getitem__(self, span: slice) -> Traced:
        start, end, _ = span.indices(len(self.text))
        first, pieces = max(bisect_right(self._starts, start) - 1, 0), []
        for index in range(first, bisect_left(self._starts, end)):
            piece, offset = self.pieces[index], self._starts[index]
            low, high = max(start - offset, 0), min(end - offset, len(piece.text))
            if low < high:
                pieces.append(piece.slice(low, high))
        return Traced(tuple(pieces))

    def origin_at(self, offset: int) -> Origin:
        """Returns the origin of the character at `offset`.

        Raises:
            IndexError: the text is empty.
        """
        index = max(bisect_right(self._starts, offset, hi=len(self.pieces)) - 1, 0)
        return self.pieces[index].origin_at(offset - self._starts[index])

    def edited(self, edits: Iterable[Edit]) -> Traced:
        """Returns the text with all edits made; insertions at one place keep their order.

        Raises:
            ValueError: two edits overlap.
        """
        parts, position = [], 0
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
            if edit.start < position:
                raise ValueError(f"edits overlap at offset {edit.start}: {self.text[edit.start : edit.start + 40]!r}")
            parts += [self[position : edit.start], edit.new]
            position = edit.end
        parts.append(self[position:])
        return Traced.join(parts)

    def lines(self) -> list[Traced]:
        """Returns the lines, each with its newline."""
        starts = line_starts(self.text)
        return [self[start:end] for start, end in pairwise(starts)]

    def paths(self) -> list[str]:
        """Returns the source files of the text, in order of first appearance."""
        return list(dict.fromkeys(piece.origin.path for piece in self.pieces))
