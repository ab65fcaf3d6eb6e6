"""A package in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from generator.code.traced import Origin


@dataclass(frozen=True)
class Package:
    """A woven package: pure data.

    Attributes:
        name: `ARCH_TARGET`, also the folder's name under generated/.
        architecture, target: the names that it was woven from.
        parts: what was asked for besides training.
        files: path inside the package -> text, `gen.lock` and `gen.map` included, sorted by path.
        origins: for each woven Python file, for each line (from 0) its segments: (column, origin) in column order.
            A blank line has the origin of the line before it.
        inputs: the source files that took part, relative to their root -> sha256 of their bytes.
    """

    name: str
    architecture: str
    target: str
    files: dict[str, str]
    origins: dict[str, list[list[tuple[int, Origin]]]]
    inputs: dict[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
