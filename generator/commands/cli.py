"""The command line. Each command imports what it needs when it runs, so that help and hash checks start fast."""

from __future__ import annotations

import gc
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generator import __version__
from generator.commands import cli_checkpoints, cli_edits, cli_runs, cli_view
from generator.commands.console import AS_JSON, NO_ONE, PATH, Commands, complain, exit_codes, progress, write_json
from generator.errors import LoomError, printable

if TYPE_CHECKING:
    from generator.disk.status import Compared


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gen", message="%(prog)s %(version)s")
def gen() -> None:
    """Weaves fragments into plain training packages, and says of every line where it came from.

    Fragments, templates and targets come with gen. Those beside the gen.toml that is found upward from the working
    directory take part too. Packages are built in generated/, or in the folder that gen.toml names as `generated`.

    Exit codes: 0 all is well; 1 a command found something, as its own help says; 2 a mistake in the sources, the
    command line or the files; 130 stopped by Ctrl-C.
    """


@gen.command("list", **NO_ONE)
@AS_JSON
def list_(as_json: bool) -> None:
    """List the architectures, targets, fragments, parts and packages."""
    from generator.commands.listing import listing, tables
    from generator.commands.tables import plain
    from generator.disk.project import Project

    found = listing(Project.find())
    write_json(found) if as_json else click.echo("\n\n".join(plain(table) for table in tables(found)))


@gen.command("points", **NO_ONE)
@click.option("--architecture", metavar="ARCH", help="Only the points of what it selects.")
@AS_JSON
def points_(architecture: str | None, as_json: bool) -> None:
    """List the join points: place, names that a splice sees there, and the fragments that splice."""
    from generator.commands.points import points, table
    from generator.commands.tables import plain
    from generator.disk.project import Project

    found = points(Project.find().library(), architecture)
    write_json(found) if as_json else click.echo(plain(table(found)))


@gen.command("build", **NO_ONE)
@click.argument("architecture", metavar="[ARCH]", required=False)
@click.option("--target", metavar="T", help="What the package is to run on; see gen list.")
@click.option("--with", "parts", metavar="PART", multiple=True, help="What it can do besides training; all; none.")
@click.option("--all", "everything", is_flag=True, help="Build every package of packages.toml, or all built before.")
@click.option("--out", metavar="DIR", type=PATH, help="Put the package's folder into DIR.")
@click.option("--own", metavar="DIR", type=PATH, help="Start a project of your own in DIR.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite and delete also what gen did not write.")
def build_(
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
    from generator.commands.build import Asked, each_package
    from generator.disk.lock import Combination, Fingerprints
    from generator.disk.project import PACKAGES, Project
    from generator.disk.uncommitted import write_uncommitted

    project = Project.find()
    if everything == bool(architecture) or everything == bool(target):
        remedy = "Write gen build ARCH --target=T, or gen build --all; gen list shows what there is."
        raise LoomError("build needs an architecture and a target, or --all", remedy=remedy)
    if (own and (everything or out or dry_run or force)) or (parts and everything):
        name = "--own" if own else "--with"
        raise LoomError(f"{name} goes with ARCH and --target alone", remedy="Leave the other options out.")
    there = f" --out {out}" if out else ""
    if architecture and target:
        listed, given = project.listed(), tuple(sorted({*parts} - {"none"}))
        given = given if parts else project.parts_of(f"{architecture}_{target}")
        combination = Combination(architecture, target, given)
        if own:
            from generator.commands.own import start

            click.echo(start(project, combination, own))
            return
        asked = Asked(project, combination, Fingerprints(project.roots), out or project.generated)
        built = asked.build(force, dry_run)
        _report_built(built, combination.command + there, force, dry_run)
        if out is None and not dry_run:
            write_uncommitted(project)
        if out is None and listed is not None and combination not in listed:
            path = project.show(project.generated / PACKAGES)
            click.echo(f"note: {combination.name} is not in {path} like this; to keep it, write", err=True)
            click.echo(combination.entry, err=True, nl=False)
        return
    total, failed = len(project.packages()), False
    if not total:
        remedy = f"Build one with gen build ARCH --target=T, or list some in {PACKAGES}."
        raise LoomError("there is no package to build", project.show(project.generated), remedy)
    for number, (name, built) in enumerate(each_package(Asked.build, project, force, dry_run, True, out=out), 1):
        try:
            if isinstance(built, LoomError):
                raise built
            _report_built(built, "gen build --all" + there, force, dry_run)
            progress(number, total, f"{name}: {built.summary if built else 'owned, left alone'}")
        except LoomError as error:
            complain(error)
            progress(number, total, f"{name}: failed")
            failed = True
    if out is None and not dry_run:
        write_uncommitted(project)
    if failed:
        raise click.exceptions.Exit(2)


def _report_built(built: Compared | None, command: str, force: bool, dry_run: bool) -> None:
    """Says what was done; what stands in the way is an error."""
    if built is None:
        click.echo("left alone, as people own it (by_hand = true in packages.toml); gen update merges")
        return
    if built.blocked and not force:
        lines = "".join(f"\n  {built.shown}/{file.path} {file.reason}" for file in built.blocked)
        remedy = f"Keep your change in a fragment, or give it up: {command} --force"
        raise LoomError(f"nothing was written, because gen would destroy work:{lines}", built.shown, remedy)
    if dry_run:
        for word, paths in (("write", built.write), ("remove", built.remove)):
            for path in paths:
                click.echo(f"would {word} {built.place(path)}")
    click.echo(f"{built.shown}: {'would be ' if dry_run else ''}{built.summary}")


@gen.command("check", **exit_codes("1 a package is not what a build makes"))
@AS_JSON
@click.option("--full", is_flag=True, help="Weave every package again, whatever its lock says.")
@click.option("--expect", type=PATH, metavar="FILE", help="With --full: fail where less is checked than it lists.")
@click.option("--base", metavar="REV", help="With --full: fail where less is checked than at this revision of git.")
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), default="text", help="Of the output.")
def check_(as_json: bool, full: bool, expect: Path | None, base: str | None, form: str) -> None:
    """Check that every package is what a build makes now.

    There are five states, each with the command that fixes it: edited (changed by hand since the build), stale (its
    sources, gen or a tool changed), missing, orphan (generated once, but nothing makes it any more), and foreign (not
    gen's; what is yours is named in packages.toml: own = ["PACKAGE/FILE"]). Locks that are as gen wrote them are
    believed; --full believes none.

    A package that people own is told as owned, with how much of it was changed, and what packages.toml names as own is
    told, too: these are no faults. --expect and --base make a fault of it where a package is checked no longer.
    --format=github writes annotations, at fragment lines where they are known.
    """
    from generator.commands.check import NO_FAULT, check
    from generator.commands.expected import by_file, by_revision
    from generator.disk.project import Project

    if (expect or base is not None) and (not full or (expect and base is not None)):
        raise LoomError("--expect or --base goes with --full", remedy="Write gen check --full --base REV.")
    project = Project.find()
    expected = by_file(expect) if expect else by_revision(project, base) if base is not None else None
    as_json = as_json or form == "json"
    findings, errors = check(project, full, None if as_json else progress, expected)
    faults = [finding for finding in findings if finding.state not in NO_FAULT]
    if as_json:
        write_json({"findings": [f._asdict() for f in findings], "errors": [str(error) for error in errors]})
    elif form == "github":
        from generator.commands.github import notes

        for line in notes(project, findings, errors):
            click.echo(line)
    else:
        for finding in findings:
            command = f"\n         {printable(finding.command)}" if finding.command else ""
            click.echo(f"{finding.state:<8} {printable(f'{finding.path}: {finding.reason}')}{command}")
        for error in errors:
            complain(error)
        count, locks = len(set(project.packages()) - set(project.by_hand())), len(project.uncommitted())
        if count and not faults and not errors:
            by_lock = f", {locks} of them not committed" if locks else ""
            click.echo(f"{count} package{'' if count == 1 else 's'} checked{by_lock}: as built")
    if faults or errors:
        raise click.exceptions.Exit(2 if errors else 1)


@gen.command("explain", **NO_ONE)
@click.argument("place", metavar="[FILE[:LINE]]", required=False)
@click.option("--fragment", metavar="NAME", help="Show where the lines of this fragment stand in the packages.")
@AS_JSON
def explain_(place: str | None, fragment: str | None, as_json: bool) -> None:
    """Say which fragment a generated line came from.

    FILE:LINE gives the fragment, its line, the feature's title and its citation; FILE alone gives them for all lines.
    """
    from generator.commands import explain
    from generator.disk.project import Project

    if bool(place) == bool(fragment):
        raise LoomError("explain needs a file or --fragment", remedy="Write gen explain FILE:LINE.")
    project = Project.find()
    if place:
        explain.file(project, place, as_json)
    elif fragment:
        explain.fragment(project, fragment, as_json)


for _command in (*cli_checkpoints.COMMANDS, *cli_edits.COMMANDS, *cli_runs.COMMANDS, *cli_view.COMMANDS):
    gen.add_command(_command)


def main() -> None:
    """The console command `gen`."""
    gc.disable()  # a command ends soon, and the collector would look for circles in trees, which have none
    if not sys.flags.utf8_mode:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a source may hold what the terminal's encoding does not
                stream.reconfigure(errors="replace")
    try:
        os.getcwd()
    except FileNotFoundError:
        complain(LoomError("the working directory is gone", remedy="Change to one that is there."))
        sys.exit(2)
    gen(prog_name="gen")


if __name__ == "__main__":
    main()
