"""Which fragments make two versions of a package differ, of files in memory."""

from __future__ import annotations

from generator.commands.diff import compare_file
from generator.disk.built import WovenPackage
from generator.disk.lock import Combination


def causes(
    combination: Combination, before: dict[str, bytes], after: dict[str, bytes], paths: list[str]
) -> dict[str, list[int]]:
    """For each source that makes the files differ its lines that do; '' for what no map covers."""
    found: dict[str, set[int]] = {}
    sides = [WovenPackage.of(combination, files) for files in (before, after)]
    for path in paths:
        for source, piece in compare_file(path, *sides):
            lines = found.setdefault(source, set())
            for side, places in ((sides[1], piece.added), (sides[0], [] if piece.added else piece.removed)):
                origins = side.origins_of(path) if places else []
                for number, _ in places:
                    inner = origins[number - 1] if number <= len(origins) else []
                    lines.update(origin.line for _, origin in inner if origin.path == source)
    return {source: sorted(lines) for source, lines in sorted(found.items())}
