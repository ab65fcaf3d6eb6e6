"""Which fragments make two versions of a package differ, of files in memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from generator.commands.diff import compare_file
from generator.disk.built import MappedPackage, Segments
from generator.disk.lock import MAP, Combination, Lock
from generator.errors import LoomError


@dataclass(frozen=True)
class _Side(MappedPackage):
    """A package in memory; without a map that can be read its lines have no origin."""

    files: dict[str, bytes]

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        from generator.code.sourcemap import load

        with suppress(LoomError, RecursionError, KeyError, UnicodeDecodeError):
            return load(self.files[MAP].decode())
        return {}

    def lines(self, path: str) -> list[str]:
        return self.files[path].decode("utf-8", "replace").splitlines()


def causes(
    combination: Combination, before: dict[str, bytes], after: dict[str, bytes], paths: list[str]
) -> dict[str, list[int]]:
    """For each source that makes the files differ its lines that do; '' for what no map covers."""
    found: dict[str, set[int]] = {}
    sides = []
    for files in (before, after):
        lock = Lock(*combination, {}, {}, {}, dict.fromkeys(files, ""))
        sides.append(_Side(Path(combination.name), lock, files))
    for path in paths:
        for source, piece in compare_file(path, *sides):
            lines = found.setdefault(source, set())
            for side, places in ((sides[1], piece.added), (sides[0], [] if piece.added else piece.removed)):
                origins = side.origins_of(path) if places else []
                for number, _ in places:
                    inner = origins[number - 1] if number <= len(origins) else []
                    lines.update(origin.line for _, origin in inner if origin.path == source)
    return {source: sorted(lines) for source, lines in sorted(found.items())}
