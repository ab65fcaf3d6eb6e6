"""Compares two versions of a package, and names the fragments that make them differ."""

from __future__ import annotations

from dataclasses import dataclass, field

from generator.code.hunks import hunks
from generator.disk.built import MappedPackage, Segments, WovenPackage
from generator.disk.lock import MAP, Combination


@dataclass
class FileChange:
    """Lines of one file that one source makes differ; line numbers count from 1."""

    path: str
    removed: list[tuple[int, str]] = field(default_factory=list)
    added: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Cause:
    """A source file and what it makes differ; `source` is '' for files that no line map covers."""

    source: str
    pieces: list[FileChange] = field(default_factory=list)

    @property
    def removed(self) -> int:
        return sum(len(piece.removed) for piece in self.pieces)

    @property
    def added(self) -> int:
        return sum(len(piece.added) for piece in self.pieces)


def group_changes(before: MappedPackage, after: MappedPackage) -> list[Cause]:
    """Finds the differences from one package to another.

    Returns:
        The causes by source path, that of files without a line map last.
    """
    found: dict[str, Cause] = {}
    for path in sorted(before.lock.outputs.keys() | after.lock.outputs.keys()):
        if path != MAP:
            for source, piece in compare_file(path, before, after):
                found.setdefault(source, Cause(source)).pieces.append(piece)
    return sorted(found.values(), key=lambda cause: (cause.source == "", cause.source))


def causes(
    combination: Combination, before: dict[str, bytes], after: dict[str, bytes], paths: list[str]
) -> dict[str, list[int]]:
    """For each source that makes the files differ its lines that do; '' for what no map covers."""
    found: dict[str, set[int]] = {}
    sides = [WovenPackage.of(combination, files) for files in (before, after)]
    for path in paths:
        for source, piece in compare_file(path, *sides):
            lines = found.setdefault(source, set())
            side, places = (sides[1], piece.added) if piece.added else (sides[0], piece.removed)
            origins = side.origins_of(path)
            for number, _ in places:
                inner = origins[number - 1] if number <= len(origins) else []
                lines.update(origin.line for _, origin in inner if origin.path == source)
    return {source: sorted(lines) for source, lines in sorted(found.items())}


def compare_file(path: str, before: MappedPackage, after: MappedPackage) -> list[tuple[str, FileChange]]:
    """Finds the differences of one file, by source."""
    old = before.lines(path) if path in before.lock.outputs else []
    new = after.lines(path) if path in after.lock.outputs else []
    old_origins = before.origins_of(path) if old else []
    new_origins = after.origins_of(path) if new else []
    result: list[tuple[str, FileChange]] = []
    for hunk in hunks(_comparable(old, before), _comparable(new, after)):
        removed = [old_origins[number] if old_origins else [] for number in hunk.before]
        added = [new_origins[number] if new_origins else [] for number in hunk.after]
        pieces: dict[str, FileChange] = {}
        for number, source in zip(hunk.before, sources_of(removed, added), strict=True):
            if number >= _header_length(old):
                pieces.setdefault(source, FileChange(path)).removed.append((number + 1, old[number]))
        for number, source in zip(hunk.after, sources_of(added, removed), strict=True):
            if number >= _header_length(new):
                pieces.setdefault(source, FileChange(path)).added.append((number + 1, new[number]))
        result += pieces.items()
    return result


def _header_length(lines: list[str]) -> int:
    """How many comment lines open a file: they name the package and its fragments, and differ wherever those do."""
    return next((number for number, line in enumerate(lines) if not line.startswith("# ")), 0)


def _comparable(lines: list[str], package: MappedPackage) -> list[str]:
    """The lines without the name of the package, which differs in every package."""
    name = package.name
    return [line.replace(name, "PACKAGE").replace(name.replace("_", "-"), "PACKAGE") for line in lines]


def sources_of(lines: list[Segments], other: list[Segments]) -> list[str]:
    """For each line the source that makes it differ from the other side.

    A line of a host that a splice or a threaded value changed stands on both sides; the cause is then the source that
    only one side has in it. Where neither has one (a setting differs), it is the source of the line's first character.
    """
    shared = {origin for segments in other for _, origin in segments}
    result = []
    for segments in lines:
        origins = [origin for _, origin in segments]
        alone = [origin for origin in origins if origin not in shared]
        result.append((alone or origins)[0].path if origins else "")
    return result
