"""Prints differences: of two packages, and of the packages and a build."""

from __future__ import annotations

from dataclasses import asdict

import click

from generator.commands.changes import pending
from generator.commands.citation import title_and_citation
from generator.commands.cli import complain, progress, write_json
from generator.commands.diff import Cause, compare, edited_files
from generator.commands.mapped import find_package
from generator.commands.project import Project


def between(project: Project, before: str, after: str, as_json: bool) -> int:
    """Prints the differences of two packages.

    Returns:
        The exit code.

    Raises:
        LoomError: one is no package, or cannot be read.
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

    Raises:
        LoomError: the list of packages cannot be read.
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
