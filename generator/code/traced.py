"""Text that knows where each character came from.

Weaving copies stretches of source and inserts small ones. A `Traced` text keeps the file and line of every stretch
through slicing and joining.
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
        return self.of_row(self.text.count("\n", 0, offset) if self.copied else 0)

    def of_row(self, row: int) -> Origin:
        """Returns the origin of a line, from 0."""
        return Origin(self.origin.path, self.origin.line + row) if self.copied and row else self.origin

    def slice(self, start: int, end: int) -> Piece:
        return Piece(self.text[start:end], self.origin_at(start), self.copied)


def line_starts(text: str) -> list[int]:
    """Returns the offset of each line, and that of the end. Only a newline ends a line: a form feed does not."""
    starts = [0, *(newline.end() for newline in re.finditer("\n", text))]
    return starts if starts[-1] == len(text) else [*starts, len(text)]


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

    def lines(self) -> list[Traced]:
        """Returns the lines, each with its newline."""
        return [self[start:end] for start, end in pairwise(self._rows)]

    def rows(self, start: int, stop: int) -> Traced:
        """Returns the lines from one on, counted from 0, and before another."""
        return self[self._rows[start] : self._rows[min(stop, len(self._rows) - 1)]]

    @cached_property
    def _rows(self) -> list[int]:
        return line_starts(self.text)

    def paths(self) -> list[str]:
        """Returns the source files of the text, in order of first appearance."""
        return list(dict.fromkeys(piece.origin.path for piece in self.pieces))


def split_lines(text: str) -> list[str]:
    """Returns the lines of a text, each with its newline. Only a newline ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


class Pieces:
    """Joins tokens to pieces: lines that follow each other in their source too, or that have one cause."""

    def __init__(self) -> None:
        self.last = Origin("", 1)  # that of the last token
        self._pieces: list[Piece] = []
        self._parts: list[str] = []  # of the last piece
        self._start = self.last
        self._newlines = 0
        self._copied: bool | None = None  # unknown as long as the piece has one line

    def add(self, text: str, origin: Origin) -> None:
        self.last = origin
        if not self._parts or not self._continues(origin):
            self._end()
            self._start, self._newlines, self._copied = origin, 0, None
        self._parts.append(text)
        self._newlines += text.count("\n")

    def _continues(self, origin: Origin) -> bool:
        if not self._newlines:
            return origin == self._start
        follows = origin.path == self._start.path and origin.line == self._start.line + self._newlines
        if self._copied is None and (follows or origin == self._start):
            self._copied = follows
        return follows if self._copied else self._copied is False and origin == self._start

    def _end(self) -> None:
        if self._parts:
            self._pieces.append(Piece("".join(self._parts), self._start, self._copied is not False))
        self._parts = []

    def traced(self) -> Traced:
        self._end()
        return Traced(tuple(self._pieces))
