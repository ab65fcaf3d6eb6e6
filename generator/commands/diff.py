"""`gen diff`: compares two packages, packages with a build, or packages with a revision."""

from __future__ import annotations

from dataclasses import asdict

import click

from generator.commands.causes import Cause, group_changes
from generator.commands.changes import find_pending_changes
from generator.commands.citation import parse_title_and_citation
from generator.commands.console import AS_JSON, complain, exit_codes, progress, write_json
from generator.disk.built import find_package
from generator.disk.project import Project
from generator.errors import LoomError


@click.command("diff", **exit_codes("1 there are differences; with --against: other than of text alone"))
@click.argument("before", metavar="[A", required=False)
@click.argument("after", metavar="B]", required=False)
@click.option("--against", "revision", metavar="REF", help="Compare with the packages that git has there, by program.")
@click.option("--package", "names", metavar="NAME", multiple=True, help="With --against: of this package alone.")
@click.option("--markdown", "as_markdown", is_flag=True, help="With --against: write a comment for a review.")
@AS_JSON
def command(
    before: str | None,
    after: str | None,
    revision: str | None,
    names: tuple[str, ...],
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Compare two packages, or show what a build would change, or what a change means.

    With two packages, by name or by folder: their differences, grouped by the fragment that causes them. With none:
    what gen build would change in the packages now; a change that occurs in many places is shown once.

    With --against REF: the packages that git has at a revision, such as HEAD, and what the fragments make now. Each
    entry point of each package (training step, evaluation, ...) gets a verdict: same text, same program, equal values,
    other numbers, other parameters, other layout, other interface, host code changed, or undecided; docs/diff.md says
    how each is known. Equal verdicts with the same reason are printed once.
    """
    if before and not after:
        raise LoomError("diff needs two packages or none", remedy=f"Name the package to compare {before} with.")
    if revision is None and (as_markdown or names):
        option = "--markdown" if as_markdown else f"--package {names[0]}"
        raise LoomError(f"{option.split()[0]} needs --against", remedy=f"Write gen diff --against HEAD {option}.")
    if revision is not None and (before or (as_json and as_markdown)):
        remedy = "Leave one of the two out."
        raise LoomError("--against takes no packages, and writes one format", remedy=remedy)
    project = Project.find()
    if revision is not None:
        from generator.commands.against import print_reports  # late: the other uses do not need its imports

        code = print_reports(project, revision, as_json, as_markdown, names)
    elif before and after:
        code = _print_two(project, before, after, as_json)
    else:
        code = _print_pending(project, as_json)
    if code:
        raise click.exceptions.Exit(code)


def _print_two(project: Project, before: str, after: str, as_json: bool) -> int:
    """Prints the differences of two packages, and returns the exit code."""
    packages = find_package(project, before), find_package(project, after)
    causes = group_changes(*packages)
    for package in packages:
        for path in package.lock.outputs:
            if (package.folder / path).is_file() and package.is_edited(path):
                shown = f"{package.label}/{path}"
                click.echo(f"note: {shown} was edited; its lines may be attributed to wrong sources", err=True)
    if as_json:
        write_json([{**asdict(cause), "lines_removed": cause.removed, "lines_added": cause.added} for cause in causes])
        return 1 if causes else 0
    texts = project.library().files if causes else {}
    for cause in causes:
        click.echo(_format_cause(cause, texts.get(cause.source, "")))
    if not causes:
        click.echo(f"{packages[0].label} and {packages[1].label} are the same")
    return 1 if causes else 0


def _format_cause(cause: Cause, text: str) -> str:
    """Returns the lines that one source makes differ; `text` is that of the source."""
    title = parse_title_and_citation(cause.source, text)[0] if cause.source else ""
    name = cause.source or "files without a line map"
    count = len({piece.path for piece in cause.pieces})
    files = "1 file" if count == 1 else f"{count} files"
    lines = [f"{name}{f' ({title})' if title else ''}: +{cause.added} -{cause.removed} in {files}"]
    path = ""
    for piece in cause.pieces:
        if piece.path != path:
            path = piece.path
            lines.append(f"  {path}")
        lines += [f"    - {number:>5} {text}".rstrip() for number, text in piece.removed]
        lines += [f"    + {number:>5} {text}".rstrip() for number, text in piece.added]
    return "\n".join(lines) + "\n"


def _print_pending(project: Project, as_json: bool) -> int:
    """Prints what a build would change, and returns the exit code."""
    changes, errors = find_pending_changes(project, None if as_json else progress)
    if as_json:
        write_json({"changes": [asdict(change) for change in changes], "errors": [str(error) for error in errors]})
        return 2 if errors else 1 if changes else 0
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
