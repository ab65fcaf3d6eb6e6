"""The command line of what shows packages and measures them: `gen loc` and `gen view`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator.commands.console import AS_JSON, NO_ONE, PATH, write_json
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.disk.built import MappedPackage
    from generator.disk.project import Project


@click.command("loc", **NO_ONE)
@AS_JSON
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown tables.")
def loc_(as_json: bool, as_markdown: bool) -> None:
    """Count source lines and the lines that they make, also by fragment and by architecture."""
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


def kept_packages(project: Project) -> list[MappedPackage]:
    """The packages that are kept and have been built; those that are not committed, and not there, are woven."""
    from generator.commands.packages import every_package
    from generator.commands.woven import woven
    from generator.disk.built import MappedPackage, WovenPackage

    kept = every_package(project)
    locks = [asked for asked in kept if asked.only_lock]
    texts = dict(zip([asked.folder for asked in locks], woven(locks), strict=True))
    result: list[MappedPackage] = []
    for asked in kept:
        if asked.folder in texts:
            files = texts[asked.folder]
            if isinstance(files, LoomError):
                raise files
            result.append(WovenPackage.of(asked.combination, files))
        elif asked.folder.is_dir():
            result.append(MappedPackage.read(asked.folder))
    return result


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
    from generator.disk.write import check_site, write_site
    from generator.view.content import Content
    from generator.view.site import make_site

    project = Project.find()
    check_site(out)  # before the work
    packages = built_packages(project)
    library = {path: (text, *title_and_citation(path, text)) for path, text in project.library().files.items()}
    files, size = write_site(out, make_site(Content(packages, library), loc(project, packages)))
    click.echo(f"{project.show(out / 'index.html')}: {files} files, {size / 1e6:.1f} MB")
