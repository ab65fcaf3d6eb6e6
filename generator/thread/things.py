"""Sets of things as integers in which each thing is a bit: they are joined, and told apart, in one operation."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

Thing = str | cst.CSTNode  # a class, for its instances too, or a function


class Things:
    """Gives each thing a bit, the first time that it is asked for.

    Attributes:
        classes: the set of all classes.
    """

    def __init__(self) -> None:
        self.classes = 0
        self._bits: dict[Thing, int] = {}
        self._ordered: list[Thing] = []

    def bit(self, thing: Thing) -> int:
        """The set of this thing alone."""
        if thing not in self._bits:
            self._bits[thing] = 1 << len(self._ordered)
            self._ordered.append(thing)
            self.classes |= self._bits[thing] if isinstance(thing, str) else 0
        return self._bits[thing]

    def of(self, things: int) -> Iterator[Thing]:
        """Yields the things of a set."""
        while things:
            last = things & -things
            yield self._ordered[last.bit_length() - 1]
            things ^= last
