"""The command line of `gen diff`, `gen loc` and `gen view`, which show packages and measure them."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.console import AS_JSON, NO_ONE, PATH, exit_codes, write_json
from generator.errors import LoomError


@click.command("diff", **exit_codes("1 there are differences; with --against: other than of text alone"))
@click.argument("before", metavar="[A", required=False)
@click.argument("after", metavar="B]", required=False)
@click.option("--against", "revision", metavar="REF", help="Compare with the packages that git has there, by program.")
@click.option("--package", "names", metavar="NAME", multiple=True, help="With --against: of this package alone.")
@click.option("--markdown", "as_markdown", is_flag=True, help="With --against: write a comment for a review.")
@AS_JSON
def diff_(
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
    other numbers, other parameters, other layout, other interface, or undecided; docs/diff.md says how each is known.
    They are printed as they are found; packages that changed alike are told as one.
    """
    from generator.commands import diff
    from generator.disk.project import Project

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
        from generator.commands import meaning

        found = meaning.show(project, revision, as_json, as_markdown, names)
    elif before and after:
        found = diff.between(project, before, after, as_json)
    else:
        found = diff.by_a_build(project, as_json)
    if found:
        raise click.exceptions.Exit(found)


@click.command("loc", **NO_ONE)
@AS_JSON
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown tables.")
def loc_(as_json: bool, as_markdown: bool) -> None:
    """Count source lines and the lines that they make, also by fragment and by architecture."""
    from generator.commands.kept import kept_packages
    from generator.commands.loc import loc
    from generator.commands.tables import as_data, markdown, plain
    from generator.disk.project import Project

    if as_json and as_markdown:
        raise LoomError("--json and --markdown are two formats", remedy="Choose one.")
    project = Project.find()
    tables = loc(project, kept_packages(project))
    if as_json:
        write_json({table.title: as_data(table) for table in tables})
    else:
        click.echo("\n\n".join((markdown if as_markdown else plain)(table) for table in tables))


@click.command("view", **NO_ONE)
@click.option("--out", metavar="DIR", required=True, type=PATH, help="Put the site there.")
def view_(out: Path) -> None:
    """Write a site that shows the packages: open DIR/index.html, no server is needed.

    It has the matrix of packages and features; the files of each package, with the fragment, the feature and the
    citation of every line and the other packages that have it; each fragment with all places where it is woven; any
    two packages side by side; what gen loc counts, as plots; and a search. It shows what is on disk, and weaves
    nothing. DIR is made, or holds an earlier site, which is replaced.
    """
    from generator.commands.citation import title_and_citation
    from generator.commands.loc import loc
    from generator.disk.built import built_packages
    from generator.disk.project import Project
    from generator.disk.site import check_site, write_site
    from generator.view.content import Content
    from generator.view.site import make_site

    project = Project.find()
    check_site(out)  # before the work
    packages = built_packages(project)
    library = {path: (text, *title_and_citation(path, text)) for path, text in project.library().files.items()}
    files, size = write_site(out, make_site(Content(packages, library), loc(project, packages)))
    click.echo(f"{project.show(out / 'index.html')}: {files} files, {size / 1e6:.1f} MB")


COMMANDS = (diff_, loc_, view_)
