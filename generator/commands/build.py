"""`gen build`: weaves the packages whose inputs changed, and writes the files that differ."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.after import text_after
from generator.commands.console import NO_ONE, PATH, Status, complain, progress
from generator.commands.own import start_project
from generator.commands.packages import PackageBuilder, create_builder, map_packages
from generator.disk.files import display_path
from generator.disk.lock import Combination
from generator.disk.project import PACKAGES, Project
from generator.disk.status import PackageStatus
from generator.disk.write import update_uncommitted_records
from generator.errors import LoomError
from generator.recipe.schema import LEFT_OUT


@click.command("build", **NO_ONE)
@click.argument("architecture", metavar="[ARCH]", required=False)
@click.option("--target", metavar="T", help="Hardware that the package runs on; see gen list.")
@click.option("--with", "parts", metavar="PART", multiple=True, help="Add a part (see gen list), all, or none.")
@click.option("--without", metavar="PART", multiple=True, help="Leave out a part that the target has by default.")
@click.option(
    "--all",
    "build_all",
    is_flag=True,
    help="Build every package of packages.toml; without it, every package that was built before.",
)
@click.option("--out", metavar="DIR", type=PATH, help="Put the package's folder into DIR.")
@click.option("--own", metavar="DIR", type=PATH, help="Start a project of your own in DIR.")
@click.option("--after", metavar="PASS", help="Print the text as it is after a pass of weaving, and write nothing.")
@click.option("--only", metavar="NAME", help="Print a FILE or a DEFINITION alone, as in model.py or Attention.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite and delete also what gen did not write.")
def command(
    architecture: str | None,
    target: str | None,
    parts: tuple[str, ...],
    without: tuple[str, ...],
    build_all: bool,
    out: Path | None,
    own: Path | None,
    after: str | None,
    only: str | None,
    dry_run: bool,
    force: bool,
) -> None:
    """Build the package of an architecture for a target: a trainer, and the parts that it is built --with.

    Without --with it has the parts that packages.toml lists, or that it was built with before; --with none leaves it
    the parts that its target has by default.

    It goes to generated/ARCH_T, or to DIR/ARCH_T. Only files whose bytes change are written. A file that was edited
    since the last build, or that gen did not make, is never overwritten or deleted without --force: it is listed, and
    nothing in that package is written. A package that people own (by_hand = true in packages.toml) is left alone.
    For a package with committed = false there, --all writes only its lock, into packages.lock, unless its files exist.

    --after PASS shows how the package is woven: every line after that pass, with the fragment that it comes from. The
    passes are state, fill, splice, layers, thread, tidy, link, format and render.

    --own DIR makes a project with this one package, for you to edit: gen update merges later changes of gen into it.
    """
    project = Project.find()
    if build_all == bool(architecture) or build_all == bool(target):
        remedy = "Write gen build ARCH --target=T, or gen build --all; gen list shows what there is."
        raise LoomError("build needs an architecture and a target, or --all", remedy=remedy)
    alone = (own or after) and (build_all or out or dry_run or force or (own and after))
    if alone or ((parts or without) and build_all):
        name = "--own" if own else "--after" if after else "--with" if parts else "--without"
        raise LoomError(f"{name} goes with ARCH and --target alone", remedy="Leave the other options out.")
    if only == "":
        raise LoomError("--only is empty", remedy="Name a file or a definition, as in model.py or Attention.")
    if only and not after:
        raise LoomError("--only goes with --after", remedy="Add --after PASS.")
    if "none" in parts and {*parts} != {"none"}:
        raise LoomError("--with none leaves out all parts, and others are given", remedy="Leave one of the two out.")
    if architecture and target:
        selected = {*parts} - {"none"} if parts else {*project.find_parts(f"{architecture}_{target}")} - {*without}
        selected |= {f"{LEFT_OUT}{part}" for part in without}
        combination = Combination(architecture, target, tuple(sorted(selected)))
        if after:
            click.echo(text_after(project, combination, after, only), nl=False)
        elif own:
            click.echo(start_project(project, combination, own))
        else:
            with Status(f"weaving {combination.name} ..."):
                build_one(project, combination, out, force, dry_run)
    elif not _build_all(project, out, force, dry_run):
        raise click.exceptions.Exit(2)


def build_one(
    project: Project, combination: Combination, out: Path | None = None, force: bool = False, dry_run: bool = False
) -> None:
    """Builds a package, and prints the entry that lists it if packages.toml does not have it."""
    status = create_builder(project, combination, out).build(force, dry_run)
    _report(status, combination.command, out, force, dry_run)
    if out:
        return
    if not dry_run:
        update_uncommitted_records(project)
    listed = project.listing.packages
    if listed is not None and combination not in listed:
        path = display_path(project.generated / PACKAGES)
        click.echo(f"note: {combination.name} is not in {path} like this; to keep it, write", err=True)
        click.echo(combination.entry, err=True, nl=False)


def _build_all(project: Project, out: Path | None, force: bool, dry_run: bool) -> bool:
    """Builds every listed package; returns whether all could be built."""
    total, is_complete = len(project.packages()), True
    if not total:
        remedy = f"Build one with gen build ARCH --target=T, or list some in {PACKAGES}."
        raise LoomError("there is no package to build", display_path(project.generated), remedy)
    results = map_packages(PackageBuilder.build, project, force, dry_run, True, out=out)
    for number, (name, status) in enumerate(results, 1):
        try:
            if isinstance(status, LoomError):
                raise status
            _report(status, "gen build --all", out, force, dry_run)
            progress(number, total, f"{name}: {status.summary if status else 'owned, left alone'}")
        except LoomError as error:
            complain(error)
            progress(number, total, f"{name}: failed")
            is_complete = False
    if not out and not dry_run:
        update_uncommitted_records(project)
    return is_complete


def _report(status: PackageStatus | None, command: str, out: Path | None, force: bool, dry_run: bool) -> None:
    """Prints what a build did; refuses one that edited files block."""
    if status is None:
        click.echo("left alone, as people own it (by_hand = true in packages.toml); gen update merges")
        return
    if not force:
        status.require_unblocked(f"{command} --out {out}" if out else command)
    if dry_run:
        for word, paths in (("write", status.to_write), ("remove", status.to_remove)):
            for path in paths:
                click.echo(f"would {word} {status.label_file(path)}")
    click.echo(f"{status.label}: {'would be ' if dry_run else ''}{status.summary}")
