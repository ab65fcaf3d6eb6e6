"""The differences of two built packages, grouped by the source that causes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from generator.commands.hunks import hunks
from generator.commands.mapped import MappedPackage, Segments
from generator.commands.project import LOCK, MAP


@dataclass
class Piece:
    """Lines of one file that one source makes differ; line numbers count from 1."""

    path: str
    removed: list[tuple[int, str]] = field(default_factory=list)
    added: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Cause:
    """A source file and what it makes differ; `source` is '' for files that no line map covers."""

    source: str
    pieces: list[Piece] = field(default_factory=list)

    @property
    def removed(self) -> int:
        return sum(len(piece.removed) for piece in self.pieces)

    @property
    def added(self) -> int:
        return sum(len(piece.added) for piece in self.pieces)

    @property
    def paths(self) -> list[str]:
        return list(dict.fromkeys(piece.path for piece in self.pieces))


def compare(before: MappedPackage, after: MappedPackage) -> list[Cause]:
    """The differences from one package to another.

    Returns:
        The causes by source path, that of files without a line map last.

    Raises:
        LoomError: a file or a map cannot be read.
    """
    causes: dict[str, Cause] = {}
    for path in sorted(before.lock.outputs.keys() | after.lock.outputs.keys()):
        if path not in (LOCK, MAP):
            for source, piece in _compare_file(path, before, after):
                causes.setdefault(source, Cause(source)).pieces.append(piece)
    return sorted(causes.values(), key=lambda cause: (cause.source == "", cause.source))


def edited_files(package: MappedPackage) -> list[str]:
    """The files whose lines may not be those of the map, because someone changed them."""
    return [path for path in package.lock.outputs if (package.folder / path).is_file() and package.edited(path)]


def _compare_file(path: str, before: MappedPackage, after: MappedPackage) -> list[tuple[str, Piece]]:
    old = before.lines(path) if path in before.lock.outputs else []
    new = after.lines(path) if path in after.lock.outputs else []
    old_origins = before.origins_of(path) if old else []
    new_origins = after.origins_of(path) if new else []
    result: list[tuple[str, Piece]] = []
    for hunk in hunks(_comparable(old, before), _comparable(new, after)):
        removed = [old_origins[number] if old_origins else [] for number in hunk.before]
        added = [new_origins[number] if new_origins else [] for number in hunk.after]
        pieces: dict[str, Piece] = {}
        for number, source in zip(hunk.before, _causes(removed, added), strict=True):
            if number >= _header_length(old):
                pieces.setdefault(source, Piece(path)).removed.append((number + 1, old[number]))
        for number, source in zip(hunk.after, _causes(added, removed), strict=True):
            if number >= _header_length(new):
                pieces.setdefault(source, Piece(path)).added.append((number + 1, new[number]))
        result += pieces.items()
    return result


def _header_length(lines: list[str]) -> int:
    """How many comment lines open a file: they name the package and its fragments, and differ wherever those do."""
    return next((number for number, line in enumerate(lines) if not line.startswith("# ")), 0)


def _comparable(lines: list[str], package: MappedPackage) -> list[str]:
    """The lines without what every package says in words of its own: its name."""
    name = package.lock.combination.name
    return [line.replace(name, "PACKAGE").replace(name.replace("_", "-"), "PACKAGE") for line in lines]


def _causes(lines: list[Segments], other: list[Segments]) -> list[str]:
    """For each line the source that makes it differ from the other side.

    A line of a host that a splice or a threaded value changed stands on both sides; what only one side has in it is the
    cause. Where nothing is on one side alone (a setting differs), it is the source of the line's first character.
    """
    shared = {origin for segments in other for _, origin in segments}
    result = []
    for segments in lines:
        origins = [origin for _, origin in segments]
        alone = [origin for origin in origins if origin not in shared]
        result.append((alone or origins)[0].path if origins else "")
    return result
