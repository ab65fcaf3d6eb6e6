"""`gen check`: whether the packages on disk are what a build makes, and what lies beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from generator.commands.console import AS_JSON, PATH, complain, exit_codes, progress, write_json
from generator.commands.expected import Expected, by_file, by_revision, unchecked
from generator.commands.findings import (
    NO_FAULT,
    OWN,
    UNCHECKED,
    UNCOMMITTED,
    Finding,
    advise_own,
    check_package,
    is_listed,
    own_paths,
)
from generator.commands.packages import each_package
from generator.disk.files import display_path, is_cache, kind_of
from generator.disk.git import index_faults, uncommitted
from generator.disk.lock import LOCKS, read_lock, read_locks
from generator.disk.project import PACKAGES, SETTINGS, Project
from generator.disk.status import EDITED, FOREIGN, MISSING, ORPHAN, STALE
from generator.disk.write import IGNORE, ignored_now, ignored_wanted, is_own_ignored
from generator.errors import LoomError, printable


@click.command("check", **exit_codes("1 a package is not what a build makes"))
@AS_JSON
@click.option("--full", is_flag=True, help="Weave every package again, whatever its lock says.")
@click.option("--expect", type=PATH, metavar="FILE", help="With --full: fail where less is checked than it lists.")
@click.option("--base", metavar="REV", help="With --full: fail where less is checked than at this revision of git.")
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), default="text", help="Of the output.")
def command(as_json: bool, full: bool, expect: Path | None, base: str | None, form: str) -> None:
    """Check that every package is what a build makes now.

    There are five states, each with the command that fixes it: edited (changed by hand since the build), stale (its
    sources, gen or a tool changed), missing, orphan (generated once, but nothing makes it any more), and foreign (not
    gen's; what is yours is named in packages.toml: own = ["PACKAGE/FILE"]). Locks that are as gen wrote them are
    believed; --full believes none.

    A package that people own is told as owned, with how much of it was changed, and what packages.toml names as own is
    told, too: these are no faults. --expect and --base make a fault of it where a package is checked no longer.
    --format=github writes annotations, at fragment lines where they are known.
    """
    if (expect or base is not None) and (not full or (expect and base is not None)):
        raise LoomError("--expect or --base goes with --full", remedy="Write gen check --full --base REV.")
    if as_json and form == "github":
        raise LoomError("--json and --format=github are two formats", remedy="Choose one.")
    project = Project.find()
    expected = by_file(expect) if expect else by_revision(project, base) if base is not None else None
    as_json = as_json or form == "json"
    findings, errors = check(project, full, None if as_json else progress, expected)
    faults = [finding for finding in findings if finding.state not in NO_FAULT]
    if as_json:
        write_json({"findings": [f._asdict() for f in findings], "errors": [str(error) for error in errors]})
    elif form == "github":
        from generator.commands.github import annotate  # late: it weaves

        for line in annotate(project, findings, errors):
            click.echo(line)
    else:
        for finding in findings:
            fix = f"\n         {printable(finding.command)}" if finding.command else ""
            click.echo(f"{finding.state:<8} {printable(f'{finding.path}: {finding.reason}')}{fix}")
        for error in errors:
            complain(error)
        count, locks = len(set(project.packages()) - set(project.by_hand())), len(project.uncommitted())
        if count and not faults and not errors:
            by_lock = f", {locks} of them not committed" if locks else ""
            click.echo(f"{count} package{'' if count == 1 else 's'} checked{by_lock}: as built")
    if faults or errors:
        raise click.exceptions.Exit(2 if errors else 1)


def check(
    project: Project,
    full: bool = False,
    report: Callable[[int, int, str], None] | None = None,
    expected: Expected | None = None,
) -> tuple[list[Finding], list[LoomError]]:
    """Checks every package that is kept, and what lies beside them.

    Args:
        full: weave every package again, whatever its lock says.
        report: called for each package that had to be woven, with its number, how many there are, and its name.
        expected: what must be checked.

    Returns:
        What was found, by package and path, and the errors that kept a package from being checked.
    """
    own = own_paths(project)
    findings, errors = [*_find_strangers(project, own), *_check_ignored(project)], list[LoomError]()
    if not project.packages() and not findings:
        raise _nothing_to_check(project)
    for _, result in each_package(check_package, project, own, full, full=full, report=report):
        if isinstance(result, LoomError):
            errors.append(result)
        else:
            findings += result
    told = {finding.path for finding in findings}
    findings += [finding for finding in _find_surprises(project, own, full) if finding.path not in told]
    findings += [Finding(UNCHECKED, *what) for what in (unchecked(project, expected) if expected else ())]
    reason = f"is named as not gen's in {PACKAGES} (own): not checked"
    findings += [Finding(OWN, path.split("/")[0], display_path(project.generated / path), reason) for path in own]
    if full and (paths := uncommitted(project.generated)):
        more = f"and {len(paths) - 1} more differ" if len(paths) > 1 else "differs"
        reason = f"{more} from the last commit: what is on disk was checked, not what is committed"
        findings.append(
            Finding(UNCOMMITTED, paths[0].split("/")[0], display_path(project.generated / paths[0]), reason)
        )
    return sorted(findings, key=lambda finding: (finding.package, finding.path)), errors


def _nothing_to_check(project: Project) -> LoomError:
    reason, correct = "is not there", f"run gen in the folder that has {SETTINGS}, or below it"
    if kind_of(project.root / SETTINGS):
        reason, correct = f"is not there, and {SETTINGS} has the packages in it", f"correct {SETTINGS}"
    if project.generated.is_dir():
        reason = "has no package that gen made"
    remedy = f"Build one with gen build ARCH --target=T, list it in {PACKAGES}, or {correct}."
    return LoomError(f"{reason}: nothing was checked", display_path(project.generated), remedy)


def _find_surprises(project: Project, own: list[str], full: bool) -> Iterator[Finding]:
    """Finds what git has of the packages that does not show on disk."""
    by_hand = {combination.name: combination in project.by_hand() for combination in project.packages()}
    at_root = project.generated.resolve() == project.root
    for path, hidden, reason, fix in index_faults(project.generated, full):
        package = path.split("/")[0]
        if is_listed(path, own) or by_hand.get(package, at_root) or (path == IGNORE and is_own_ignored(project)):
            continue
        yield Finding(FOREIGN if hidden else EDITED, package, display_path(project.generated / path), reason, fix)


def _check_ignored(project: Project) -> Iterator[Finding]:
    """Checks that git passes over what is not committed, and has locks of nothing else."""
    if (now := ignored_now(project)) != ignored_wanted(project):
        reason = f"does not say which packages of {PACKAGES} have committed = false"
        shown = display_path(project.generated / IGNORE)
        yield Finding(STALE if now else MISSING, IGNORE, shown, reason, "gen build --all")
    with suppress(LoomError):  # of a file that cannot be read each package tells
        names = {combination.name for combination in project.uncommitted()}
        if more := sorted(read_locks(project.generated).keys() - names):
            reason = f"has the lock of {more[0]}, which is not a package with committed = false"
            yield Finding(ORPHAN, LOCKS, display_path(project.generated / LOCKS), reason, "gen build --all")


def _find_strangers(project: Project, own: list[str]) -> Iterator[Finding]:
    """Finds what lies beside the packages and is none of them."""
    names = [PACKAGES, LOCKS, *(combination.name for combination in project.packages())]
    if project.generated.resolve() == project.root:  # a project of one's own, whose other files are nobody's concern
        return
    for name in os.listdir(project.generated) if project.generated.is_dir() else ():
        if name in names or is_cache(name) or is_listed(name, own):
            continue
        state, reason = FOREIGN, "is not a package that is kept here"
        with suppress(LoomError):
            if read_lock(project.generated / name).combination.name == name:
                state, reason = ORPHAN, f"{PACKAGES} does not list this package"
        yield Finding(state, name, display_path(project.generated / name), f"{reason}; {advise_own(name)}")
