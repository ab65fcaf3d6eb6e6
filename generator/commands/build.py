"""`gen build`: weaves packages where something changed, and writes what differs."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.console import NO_ONE, PATH, complain, progress
from generator.commands.own import start
from generator.commands.packages import PackageBuilder, each_package
from generator.disk.files import display_path
from generator.disk.lock import Combination, Fingerprints
from generator.disk.project import PACKAGES, Project
from generator.disk.status import PackageStatus
from generator.disk.write import write_uncommitted
from generator.errors import LoomError


@click.command("build", **NO_ONE)
@click.argument("architecture", metavar="[ARCH]", required=False)
@click.option("--target", metavar="T", help="What the package is to run on; see gen list.")
@click.option("--with", "parts", metavar="PART", multiple=True, help="What it can do besides training; all; none.")
@click.option("--all", "everything", is_flag=True, help="Build every package of packages.toml, or all built before.")
@click.option("--out", metavar="DIR", type=PATH, help="Put the package's folder into DIR.")
@click.option("--own", metavar="DIR", type=PATH, help="Start a project of your own in DIR.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite and delete also what gen did not write.")
def command(
    architecture: str | None,
    target: str | None,
    parts: tuple[str, ...],
    everything: bool,
    out: Path | None,
    own: Path | None,
    dry_run: bool,
    force: bool,
) -> None:
    """Build the package of an architecture for a target: a trainer, and the parts that it is built --with.

    Without --with it has the parts that packages.toml lists, or that it was built with before.

    It goes to generated/ARCH_T, or to DIR/ARCH_T. Only files whose bytes change are written. A file that was edited
    since the last build, or that gen did not make, is never overwritten or deleted without --force: it is listed, and
    nothing in that package is written. A package that people own (by_hand = true in packages.toml) is left alone.
    Of one with committed = false there, --all writes its lock alone, into packages.lock, unless its files are there.

    --own DIR makes a project that holds this one package, for you to edit: gen update then takes in what gen brings.
    """
    project = Project.find()
    if everything == bool(architecture) or everything == bool(target):
        remedy = "Write gen build ARCH --target=T, or gen build --all; gen list shows what there is."
        raise LoomError("build needs an architecture and a target, or --all", remedy=remedy)
    if (own and (everything or out or dry_run or force)) or (parts and everything):
        name = "--own" if own else "--with"
        raise LoomError(f"{name} goes with ARCH and --target alone", remedy="Leave the other options out.")
    if "none" in parts and {*parts} != {"none"}:
        raise LoomError("--with none leaves out all parts, and others are given", remedy="Leave one of the two out.")
    if architecture and target:
        given = tuple(sorted({*parts} - {"none"})) if parts else project.parts_of(f"{architecture}_{target}")
        combination = Combination(architecture, target, given)
        if own:
            click.echo(start(project, combination, own))
        else:
            _build_one(project, combination, out, force, dry_run)
    elif not _build_all(project, out, force, dry_run):
        raise click.exceptions.Exit(2)


def _build_one(project: Project, combination: Combination, out: Path | None, force: bool, dry_run: bool) -> None:
    """Builds a package, and says how to list it where it is not listed."""
    builder = PackageBuilder(project, combination, Fingerprints(project.roots), out or project.generated)
    _report(builder.build(force, dry_run), combination.command, out, force, dry_run)
    if out:
        return
    if not dry_run:
        write_uncommitted(project)
    listed = project.listed()
    if listed is not None and combination not in listed:
        path = display_path(project.generated / PACKAGES)
        click.echo(f"note: {combination.name} is not in {path} like this; to keep it, write", err=True)
        click.echo(combination.entry, err=True, nl=False)


def _build_all(project: Project, out: Path | None, force: bool, dry_run: bool) -> bool:
    """Builds every package that is kept; returns whether all could be built."""
    total, good = len(project.packages()), True
    if not total:
        remedy = f"Build one with gen build ARCH --target=T, or list some in {PACKAGES}."
        raise LoomError("there is no package to build", display_path(project.generated), remedy)
    for number, (name, built) in enumerate(
        each_package(PackageBuilder.build, project, force, dry_run, True, out=out), 1
    ):
        try:
            if isinstance(built, LoomError):
                raise built
            _report(built, "gen build --all", out, force, dry_run)
            progress(number, total, f"{name}: {built.summary if built else 'owned, left alone'}")
        except LoomError as error:
            complain(error)
            progress(number, total, f"{name}: failed")
            good = False
    if not out and not dry_run:
        write_uncommitted(project)
    return good


def _report(built: PackageStatus | None, command: str, out: Path | None, force: bool, dry_run: bool) -> None:
    """Prints what was done; what stands in the way is an error."""
    if built is None:
        click.echo("left alone, as people own it (by_hand = true in packages.toml); gen update merges")
        return
    if built.blocked and not force:
        lines = "".join(f"\n  {built.shown}/{file.path} {file.reason}" for file in built.blocked)
        there = f" --out {out}" if out else ""
        remedy = f"Keep your change in a fragment, or give it up: {command}{there} --force"
        raise LoomError(f"nothing was written, because gen would destroy work:{lines}", built.shown, remedy)
    if dry_run:
        for word, paths in (("write", built.write), ("remove", built.remove)):
            for path in paths:
                click.echo(f"would {word} {built.place(path)}")
    click.echo(f"{built.shown}: {'would be ' if dry_run else ''}{built.summary}")
