"""A woven package in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from generator.code.traced import Origin


@dataclass(frozen=True)
class Package:
    """A woven package: pure data.

    Attributes:
        name: `ARCH_TARGET`, also its folder under generated/.
        parts: names of the requested parts.
        files: path inside the package -> text, sorted by path, without gen.lock and gen.map.
        origins: Python file -> for each line, from 0, its segments: (column, origin), by column. A blank line has the
            origin of the line before it.
        inputs: source file, relative to its root -> SHA-256 of its text.
    """

    name: str
    architecture: str
    target: str
    files: dict[str, str]
    origins: dict[str, list[list[tuple[int, Origin]]]]
    inputs: dict[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
