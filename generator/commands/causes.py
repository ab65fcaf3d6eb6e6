"""Compares two versions of a package, and attributes each difference to the source that causes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from generator.code.hunks import hunks
from generator.disk.built import MappedPackage, Segments, WovenPackage
from generator.disk.lock import MAP, Combination


@dataclass
class FileChange:
    """The lines of one file that one source changes; line numbers count from 1."""

    path: str
    removed: list[tuple[int, str]] = field(default_factory=list)
    added: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Cause:
    """A source and the lines that it changes; `source` is "" for files without a line map."""

    source: str
    pieces: list[FileChange] = field(default_factory=list)

    @property
    def removed(self) -> int:
        return sum(len(piece.removed) for piece in self.pieces)

    @property
    def added(self) -> int:
        return sum(len(piece.added) for piece in self.pieces)


def group_changes(before: MappedPackage, after: MappedPackage) -> list[Cause]:
    """Compares two packages, and groups the differences by cause.

    Returns:
        The causes sorted by source, with that of files without a line map last.
    """
    causes: dict[str, Cause] = {}
    for path in sorted(before.lock.outputs.keys() | after.lock.outputs.keys()):
        if path != MAP:
            for source, piece in _attribute_changes(path, before, after):
                causes.setdefault(source, Cause(source)).pieces.append(piece)
    return sorted(causes.values(), key=lambda cause: (cause.source == "", cause.source))


def find_cause_lines(
    combination: Combination, before: dict[str, bytes], after: dict[str, bytes], paths: list[str]
) -> dict[str, list[int]]:
    """Returns for each source that changes these files the lines of the source that do; "" for files without a map."""
    causes: dict[str, set[int]] = {}
    old, new = (WovenPackage.from_files(combination, files) for files in (before, after))
    for path in paths:
        for source, piece in _attribute_changes(path, old, new):
            lines = causes.setdefault(source, set())
            origins = (new if piece.added else old).line_origins(path)
            for number, _ in piece.added or piece.removed:
                segments = origins[number - 1] if number <= len(origins) else []
                lines.update(origin.line for _, origin in segments if origin.path == source)
    return {source: sorted(lines) for source, lines in sorted(causes.items())}


def _attribute_changes(path: str, before: MappedPackage, after: MappedPackage) -> list[tuple[str, FileChange]]:
    """Finds the differences of one file, each with its source."""
    old, new = (side.read_lines(path) if path in side.lock.outputs else [] for side in (before, after))
    old_origins = before.line_origins(path) if old else []
    new_origins = after.line_origins(path) if new else []
    changes: list[tuple[str, FileChange]] = []
    for hunk in hunks(_blank_package_name(old, before), _blank_package_name(new, after)):
        removed = [old_origins[number] if old_origins else [] for number in hunk.before]
        added = [new_origins[number] if new_origins else [] for number in hunk.after]
        pieces: dict[str, FileChange] = {}
        for number, source in zip(hunk.before, find_differing_sources(removed, added), strict=True):
            if number >= _header_length(old):
                pieces.setdefault(source, FileChange(path)).removed.append((number + 1, old[number]))
        for number, source in zip(hunk.after, find_differing_sources(added, removed), strict=True):
            if number >= _header_length(new):
                pieces.setdefault(source, FileChange(path)).added.append((number + 1, new[number]))
        changes += pieces.items()
    return changes


def _header_length(lines: list[str]) -> int:
    """Counts the comment lines at the top of a file, which name the package and its fragments."""
    return next((number for number, line in enumerate(lines) if not line.startswith("# ")), 0)


def _blank_package_name(lines: list[str], package: MappedPackage) -> list[str]:
    """Replaces the name of the package, which differs between packages."""
    name = package.name
    return [line.replace(name, "PACKAGE").replace(name.replace("_", "-"), "PACKAGE") for line in lines]


def find_differing_sources(lines: list[Segments], other: list[Segments]) -> list[str]:
    """Returns for each line the source that makes it differ from the other side.

    Both sides have a line of a host that a splice or a threaded value changed: its cause is the source that only one
    side has. If neither side has one, because a setting differs, it is the source of the line's first character.
    """
    shared = {origin for segments in other for _, origin in segments}
    sources = []
    for segments in lines:
        origins = [origin for _, origin in segments]
        differing = [origin for origin in origins if origin not in shared]
        sources.append((differing or origins)[0].path if origins else "")
    return sources
