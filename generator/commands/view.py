"""`gen view`: writes a site that shows the packages and their fragments."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.citation import parse_title_and_citation
from generator.commands.console import NO_ONE, PATH
from generator.commands.loc import count_all
from generator.disk.built import find_built_packages
from generator.disk.project import Project
from generator.disk.write import check_site, write_site
from generator.view.content import Content
from generator.view.site import make_site


@click.command("view", **NO_ONE)
@click.option("--out", metavar="DIR", required=True, type=PATH, help="Put the site there.")
def command(out: Path) -> None:
    """Write a site that shows the packages: open DIR/index.html, no server is needed.

    It has the matrix of packages and features; the files of each package, with the fragment, the feature and the
    citation of every line and the other packages that have it; each fragment with all places where it is woven; any
    two packages side by side; what gen loc counts, as plots; and a search. It shows what is on disk, and weaves
    nothing. DIR is made, or holds an earlier site, which is replaced.
    """
    project = Project.find()
    check_site(out)  # before the work
    packages = find_built_packages(project)
    library = {path: (text, *parse_title_and_citation(path, text)) for path, text in project.library().files.items()}
    built = {package.name for package in packages}
    locked = [combination.name for combination in project.packages() if combination.name not in built]
    files, size = write_site(out, make_site(Content(packages, library), count_all(project, packages), locked))
    click.echo(f"{project.display_path(out / 'index.html')}: {files} files, {size / 1e6:.1f} MB")
