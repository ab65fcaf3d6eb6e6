"""Differences: of two packages, grouped by the source that causes them, and of the packages and a build."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import click

from generator.code.hunks import hunks
from generator.commands.changes import pending
from generator.commands.citation import title_and_citation
from generator.commands.console import complain, progress, write_json
from generator.disk.built import MappedPackage, Segments, find_package
from generator.disk.lock import MAP
from generator.disk.project import Project


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


def between(project: Project, before: str, after: str, as_json: bool) -> int:
    """Prints the differences of two packages.

    Returns:
        The exit code.
    """
    packages = find_package(project, before), find_package(project, after)
    causes = compare(*packages)
    for package in packages:
        for path in edited_files(package):
            click.echo(f"note: {package.shown}/{path} was edited; its lines may be laid to wrong sources", err=True)
    if as_json:
        write_json([{**asdict(cause), "lines_removed": cause.removed, "lines_added": cause.added} for cause in causes])
    else:
        texts = project.library().files if causes else {}
        for cause in causes:
            click.echo(_cause_text(cause, texts.get(cause.source, "")))
        if not causes:
            click.echo(f"{packages[0].shown} and {packages[1].shown} are the same")
    return 1 if causes else 0


def _cause_text(cause: Cause, text: str) -> str:
    title = title_and_citation(cause.source, text)[0] if cause.source else ""
    name = cause.source or "files without a line map"
    files = "1 file" if len(cause.paths) == 1 else f"{len(cause.paths)} files"
    lines = [f"{name}{f' ({title})' if title else ''}: +{cause.added} -{cause.removed} in {files}"]
    path = ""
    for piece in cause.pieces:
        if piece.path != path:
            path = piece.path
            lines.append(f"  {path}")
        lines += [f"    - {number:>5} {text}".rstrip() for number, text in piece.removed]
        lines += [f"    + {number:>5} {text}".rstrip() for number, text in piece.added]
    return "\n".join(lines) + "\n"


def by_a_build(project: Project, as_json: bool) -> int:
    """Prints what a build would change.

    Returns:
        The exit code.
    """
    changes, errors = pending(project, None if as_json else progress)
    if as_json:
        write_json({"changes": [asdict(change) for change in changes], "errors": [str(error) for error in errors]})
    else:
        for change in changes:
            count, packages = len(change.places), len(change.packages)
            times = "" if count == 1 else f" ({count} places in {packages} package{'s' if packages > 1 else ''})"
            click.echo(f"@@ {change.places[0]}{times}")
            if packages > 1:
                click.echo(f"   in {', '.join(change.packages)}")
            click.echo(change.text + "\n")
        for error in errors:
            complain(error)
        if not changes and not errors:
            click.echo("a build would change nothing")
    return 2 if errors else 1 if changes else 0


def compare(before: MappedPackage, after: MappedPackage) -> list[Cause]:
    """The differences from one package to another.

    Returns:
        The causes by source path, that of files without a line map last.
    """
    causes: dict[str, Cause] = {}
    for path in sorted(before.lock.outputs.keys() | after.lock.outputs.keys()):
        if path != MAP:
            for source, piece in compare_file(path, before, after):
                causes.setdefault(source, Cause(source)).pieces.append(piece)
    return sorted(causes.values(), key=lambda cause: (cause.source == "", cause.source))


def edited_files(package: MappedPackage) -> list[str]:
    """The files whose lines may not be those of the map, because someone changed them."""
    return [path for path in package.lock.outputs if (package.folder / path).is_file() and package.edited(path)]


def compare_file(path: str, before: MappedPackage, after: MappedPackage) -> list[tuple[str, Piece]]:
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
