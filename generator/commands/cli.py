"""The command line. Each command imports what it needs when it runs, so that help and hash checks start fast."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from generator import __version__
from generator.errors import LoomError, nearest

EXIT_CODES = "Exit codes: 0 all is well; {one}; 2 a mistake in the sources, the command line or the files."


class Commands(click.Group):
    """Turns a user's mistake into `error: ...` and exit code 2, and names the nearest command for an unknown one."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise LoomError(f"there is no command {args[0]!r}", remedy=nearest(args[0], self.commands))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LoomError as error:
            complain(error)
        except OSError as error:
            if error.errno == errno.EPIPE:  # `gen list | head`: click ends it quietly
                raise
            complain(LoomError(error.strerror or str(error), error.filename and str(error.filename)))
        ctx.exit(2)


def complain(error: LoomError) -> None:
    click.echo(f"error: {error}", err=True)


def progress(number: int, total: int, text: str) -> None:
    """A line for each package, where there is more than one."""
    if total > 1:
        click.echo(f"[{number}/{total}] {text}", err=True)


def write_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def exit_codes(one: str) -> dict[str, str]:
    return {"epilog": EXIT_CODES.format(one=one)}


NO_ONE = exit_codes("1 is not used")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gen", message="%(prog)s %(version)s")
def gen() -> None:
    """Weaves fragments into plain training packages, and says of every line where it came from.

    Fragments, templates and targets come with gen. Those beside the gen.toml that is found upward from the working
    directory take part too. Packages are built in generated/, or in the folder that gen.toml names as `generated`.

    Exit codes: 0 all is well; 1 `check` or `diff` found something; 2 a mistake in the sources, the command line or the
    files.
    """


@gen.command("list", **NO_ONE)
@AS_JSON
def list_(as_json: bool) -> None:
    """List the architectures, targets, fragments and packages."""
    from generator.commands.listing import listing, tables
    from generator.commands.project import Project
    from generator.commands.tables import plain

    found = listing(Project.find())
    write_json(found) if as_json else click.echo("\n\n".join(plain(table) for table in tables(found)))


@gen.command("new", **NO_ONE)
@click.option("--from-hf", "config", metavar="FILE", required=True, type=click.Path(path_type=Path), help="config.json")
@click.option("--target", metavar="T", required=True, help="What the package is to run on; see gen list.")
@click.option("--name", metavar="NAME", required=True, help="Of the architecture.")
@click.option("--ignore", metavar="SETTING", multiple=True, help="Of config.json: accept what no fragment covers.")
def new_(config: Path, target: str, name: str, ignore: tuple[str, ...]) -> None:
    """Write an architecture file for a checkpoint, from its config.json.

    The family is chosen by model_type, and its structure (tied embeddings, which layers are sparse, ...) by the
    settings; sizes become a preset. Settings that no fragment covers are an error that names all of them; --ignore
    accepts one, and is written to the architecture file.
    """
    from generator.commands.new import new
    from generator.commands.project import Project

    project = Project.find()
    family, path = new(project, config, target, name, ignore)
    click.echo(f"{project.show(path)}: as {family}; next: gen build {name} --target={target}")


@gen.command("build", **NO_ONE)
@click.argument("architecture", metavar="[ARCH]", required=False)
@click.option("--target", metavar="T", help="What the package is to run on; see gen list.")
@click.option("--all", "everything", is_flag=True, help="Build every package of packages.toml, or all built before.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Put the package's folder into DIR.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite and delete also what gen did not write.")
def build_(
    architecture: str | None, target: str | None, everything: bool, out: Path | None, dry_run: bool, force: bool
) -> None:
    """Build the package of an architecture for a target.

    It goes to generated/ARCH_T, or to DIR/ARCH_T. Only files whose bytes change are written. A file that was edited
    since the last build, or that gen did not make, is never overwritten or deleted without --force: it is listed, and
    nothing in that package is written.
    """
    from generator.commands.build import build, build_all
    from generator.commands.project import Combination, Project

    project = Project.find()
    if everything == bool(architecture) or everything == bool(target):
        remedy = "Write gen build ARCH --target=T, or gen build --all; gen list shows what there is."
        raise LoomError("build needs an architecture and a target, or --all", remedy=remedy)
    if architecture and target:
        combination = Combination(architecture, target)
        result = build(project, combination, out, force, dry_run)
        _report_built(result, dry_run)
        result.refuse(combination.command + (f" --out {out}" if out else ""))
        _note_unlisted(project, combination, out)
        return

    def report(number: int, total: int, result: Any) -> None:
        progress(number, total, "failed" if isinstance(result, LoomError) else f"{result.name}: {result.summary}")

    failed = False
    for built in build_all(project, out, force, dry_run, report):
        try:
            if isinstance(built, LoomError):
                raise built
            _report_built(built, dry_run)
            built.refuse("gen build --all" + (f" --out {out}" if out else ""))
        except LoomError as error:
            complain(error)
            failed = True
    if failed:
        raise click.exceptions.Exit(2)


def _report_built(built: Any, dry_run: bool) -> None:
    if built.blocked and not built.forced:
        return
    if dry_run:
        for word, paths in (("write", built.written), ("remove", built.removed)):
            for path in paths:
                click.echo(f"would {word} {built.folder}/{path}")
    click.echo(f"{built.folder}: {'would be ' if dry_run else ''}{built.summary}")


def _note_unlisted(project: Any, combination: Any, out: Path | None) -> None:
    listed = project.listed()
    if out is None and listed is not None and combination not in listed:
        path = project.show(project.generated / "packages.toml")
        click.echo(f"note: {combination.name} is not in {path}; to keep it, add", err=True)
        click.echo(f'\n[[package]]\narchitecture = "{combination[0]}"\ntarget = "{combination[1]}"', err=True)


@gen.command("check", **exit_codes("1 a package is not what a build makes"))
@AS_JSON
@click.option("--full", is_flag=True, help="Weave every package again, whatever its lock says.")
def check_(as_json: bool, full: bool) -> None:
    """Check that every package is what a build makes now.

    Four states are told apart, each with the command that mends it: edited (changed by hand since the build), stale
    (its sources, gen or a tool changed), missing, and orphan (generated once, but nothing makes it any more). Files of
    your own in a package are left in peace.
    """
    from generator.commands.check import check
    from generator.commands.project import Project

    project = Project.find()
    findings, errors = check(project, full, None if as_json else progress)
    if as_json:
        write_json({"findings": [f._asdict() for f in findings], "errors": [str(error) for error in errors]})
    else:
        for finding in findings:
            click.echo(f"{finding.state:<8} {finding.path}: {finding.reason}\n         {finding.command}")
        for error in errors:
            complain(error)
        if not findings and not errors:
            count = len(project.packages())
            click.echo(f"{count} package{'' if count == 1 else 's'} checked: as built")
    if findings or errors:
        raise click.exceptions.Exit(2 if errors else 1)


@gen.command("diff", **exit_codes("1 there are differences"))
@click.argument("before", metavar="[A", required=False)
@click.argument("after", metavar="B]", required=False)
@AS_JSON
def diff_(before: str | None, after: str | None, as_json: bool) -> None:
    """Compare two packages, or show what a build would change.

    With two packages, by name or by folder: their differences, grouped by the fragment that causes them. With none:
    what gen build would change in the packages now; a change that occurs in many places is shown once.
    """
    from generator.commands import differ
    from generator.commands.project import Project

    if before and not after:
        raise LoomError("diff needs two packages or none", remedy=f"Name the package to compare {before} with.")
    project = Project.find()
    if before and after:
        found = differ.between(project, before, after, as_json)
    else:
        found = differ.by_a_build(project, as_json)
    if found:
        raise click.exceptions.Exit(found)


@gen.command("explain", **NO_ONE)
@click.argument("place", metavar="[FILE[:LINE]]", required=False)
@click.option("--fragment", metavar="NAME", help="Show where the lines of this fragment stand in the packages.")
@AS_JSON
def explain_(place: str | None, fragment: str | None, as_json: bool) -> None:
    """Say which fragment a generated line came from.

    FILE:LINE gives the fragment, its line, the feature's title and its citation; FILE alone gives them for all lines.
    """
    from generator.commands import explainer
    from generator.commands.project import Project

    if bool(place) == bool(fragment):
        raise LoomError("explain needs a file or --fragment", remedy="Write gen explain FILE:LINE.")
    project = Project.find()
    if place:
        explainer.file(project, place, as_json)
    elif fragment:
        explainer.fragment(project, fragment, as_json)


@gen.command("loc", **NO_ONE)
@AS_JSON
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown tables.")
@click.option("--feature", "features", multiple=True, help="Also measure what this fragment touches, like model/rope.")
def loc_(as_json: bool, as_markdown: bool, features: tuple[str, ...]) -> None:
    """Count source lines and the lines that they make.

    Also what each fragment and each architecture adds, and which code fragments restate from each other.
    """
    from generator.commands.loc import loc, tables
    from generator.commands.project import Project
    from generator.commands.tables import markdown, plain

    if as_json and as_markdown:
        raise LoomError("--json and --markdown are two formats", remedy="Choose one.")
    report = loc(Project.find(), features)
    if as_json:
        write_json(report)
    else:
        click.echo("\n\n".join((markdown if as_markdown else plain)(table) for table in tables(report)))


def main() -> None:
    """The console command `gen`."""
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
