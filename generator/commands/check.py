"""`gen check`: compares the packages on disk with a build, and checks what else is in their folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from generator.commands.baseline import CheckBaseline, find_uncovered, read_baseline, read_baseline_at
from generator.commands.console import AS_JSON, PATH, complain, exit_codes, progress, write_json
from generator.commands.findings import (
    NO_FAULT,
    OWN,
    UNCOMMITTED,
    Finding,
    check_package,
    is_unmanaged,
    read_unmanaged_paths,
    suggest_unmanaged,
)
from generator.commands.packages import map_packages
from generator.disk.files import display_path, is_cache, kind_of
from generator.disk.git import find_index_faults, list_diff
from generator.disk.lock import LOCKS, read_lock, read_locks
from generator.disk.project import PACKAGES, SETTINGS, Project
from generator.disk.status import EDITED, FOREIGN, MEANINGS, MISSING, ORPHAN, STALE
from generator.disk.write import IGNORE, expected_gitignore, is_generated_gitignore, read_gitignore
from generator.errors import LoomError, printable

STATES = f"States: {'; '.join(f'{state}: {meaning}' for state, meaning in MEANINGS.items())}."


@click.command("check", **exit_codes("1 a package is not what a build makes", STATES))
@AS_JSON
@click.option("--full", is_flag=True, help="Weave every package again, whatever its lock says.")
@click.option(
    "--expect", type=PATH, metavar="FILE", help="With --full: fail if a package that it lists is not checked."
)
@click.option("--base", metavar="REV", help="With --full: fail if less is checked than at this revision of git.")
@click.option("--format", "form", type=click.Choice(["text", "json", "github"]), default="text", help="Output format.")
def command(as_json: bool, full: bool, expect: Path | None, base: str | None, form: str) -> None:
    """Check that every package is what a build makes now.

    Each file that differs is printed with its state, as listed below, and with the command that fixes it. Locks that
    are as gen wrote them are trusted; --full trusts none.

    A package that people own is reported with the number of its changed lines, and so are the paths that packages.toml
    names as own: these are not faults. --expect and --base make it a fault if a package is not checked any more.
    --format=github writes annotations, at fragment lines where they are known.
    """
    if (expect or base is not None) and (not full or (expect and base is not None)):
        raise LoomError("--expect or --base goes with --full", remedy="Write gen check --full --base REV.")
    if as_json and form == "github":
        raise LoomError("--json and --format=github are two formats", remedy="Choose one.")
    project = Project.find()
    baseline = read_baseline(expect) if expect else read_baseline_at(project, base) if base is not None else None
    as_json = as_json or form == "json"
    findings, errors = check(project, full, None if as_json else progress, baseline)
    has_faults = any(finding.state not in NO_FAULT for finding in findings)
    if as_json:
        write_json({"findings": [f._asdict() for f in findings], "errors": [str(error) for error in errors]})
    elif form == "github":
        from generator.commands.github import annotate  # imported late: it weaves

        for line in annotate(project, findings, errors):
            click.echo(line)
    else:
        for finding in findings:
            fix = f"\n         {printable(finding.command)}" if finding.command else ""
            click.echo(f"{finding.state:<8} {printable(f'{finding.path}: {finding.reason}')}{fix}")
        for error in errors:
            complain(error)
        count, locks = len({*project.packages()} - {*project.listing.owned}), len(project.listing.uncommitted)
        if count and not has_faults and not errors:
            by_lock = f", {locks} of them not committed" if locks else ""
            click.echo(f"{count} package{'' if count == 1 else 's'} checked{by_lock}: as built")
    if has_faults or errors:
        raise click.exceptions.Exit(2 if errors else 1)


def check(
    project: Project,
    full: bool = False,
    report: Callable[[int, int, str], None] | None = None,
    baseline: CheckBaseline | None = None,
) -> tuple[list[Finding], list[LoomError]]:
    """Checks every listed package, and the other files in the output folder.

    Args:
        full: weaves every package whatever its lock says.
        report: as in `map_packages`.
        baseline: lists what must be checked.

    Returns:
        The findings sorted by package and path, and the errors of packages that could not be checked.
    """
    unmanaged = read_unmanaged_paths(project)
    findings, errors = [*_check_siblings(project, unmanaged), *_check_gitignore(project)], list[LoomError]()
    if not project.packages() and not findings:
        raise _refuse_empty_check(project)
    for _, result in map_packages(check_package, project, unmanaged, full, full=full, report=report):
        if isinstance(result, LoomError):
            errors.append(result)
        else:
            findings += result
    reported = {finding.path for finding in findings}
    findings += [finding for finding in _check_index(project, unmanaged, full) if finding.path not in reported]
    findings += find_uncovered(project, baseline) if baseline else []
    reason = f"is named as not gen's in {PACKAGES} (own): not checked"
    findings += [Finding.at(project, OWN, path, reason) for path in unmanaged]
    if full and (paths := list_diff(project.generated, "HEAD", code=None)):
        more = f"and {len(paths) - 1} more differ" if len(paths) > 1 else "differs"
        reason = f"{more} from the last commit: what is on disk was checked, not what is committed"
        findings.append(Finding.at(project, UNCOMMITTED, paths[0], reason))
    return sorted(findings, key=lambda finding: (finding.package, finding.path)), errors


def _refuse_empty_check(project: Project) -> LoomError:
    reason, fix = "is not there", f"run gen in the folder that has {SETTINGS}, or below it"
    if kind_of(project.root / SETTINGS):
        reason, fix = f"is not there, and {SETTINGS} has the packages in it", f"correct {SETTINGS}"
    if project.generated.is_dir():
        reason = "has no package that gen made"
    remedy = f"Build one with gen build ARCH --target=T, list it in {PACKAGES}, or {fix}."
    return LoomError(f"{reason}: nothing was checked", display_path(project.generated), remedy)


def _check_index(project: Project, unmanaged: list[str], full: bool) -> Iterator[Finding]:
    """Finds differences of the packages that only git's index shows."""
    packages, owned = ([c.name for c in listed] for listed in (project.packages(), project.listing.owned))
    at_root = project.generated.resolve() == project.root
    for path, is_hidden, reason, fix in find_index_faults(project.generated, full):
        name = path.split("/")[0]
        is_exempt = name in owned if name in packages else at_root
        if is_exempt or is_unmanaged(path, unmanaged) or (path == IGNORE and is_generated_gitignore(project)):
            continue
        yield Finding.at(project, FOREIGN if is_hidden else EDITED, path, reason, fix)


def _check_gitignore(project: Project) -> Iterator[Finding]:
    """Checks that git ignores exactly the uncommitted packages, and that packages.lock has no other locks."""
    if (lines := read_gitignore(project)) != expected_gitignore(project):
        reason = f"does not list exactly the packages of {PACKAGES} that have committed = false"
        yield Finding.at(project, STALE if lines else MISSING, IGNORE, reason, "gen build --all")
    with suppress(LoomError):  # the check of each package reports an unreadable file
        names = {combination.name for combination in project.listing.uncommitted}
        if more := sorted(read_locks(project.generated).keys() - names):
            reason = f"has the lock of {more[0]}, which is not a package with committed = false"
            yield Finding.at(project, ORPHAN, LOCKS, reason, "gen build --all")


def _check_siblings(project: Project, unmanaged: list[str]) -> Iterator[Finding]:
    """Finds the entries of the output folder that are not listed packages."""
    names = [PACKAGES, LOCKS, *(combination.name for combination in project.packages())]
    if project.generated.resolve() == project.root:  # a project made by --own: its other files are the user's
        return
    for name in os.listdir(project.generated) if project.generated.is_dir() else ():
        if name in names or is_cache(name) or is_unmanaged(name, unmanaged):
            continue
        state, reason = FOREIGN, "is not a package of this project"
        with suppress(LoomError):
            if read_lock(project.generated / name).combination.name == name:
                state, reason = ORPHAN, f"{PACKAGES} does not list this package"
        yield Finding.at(project, state, name, f"{reason}; {suggest_unmanaged(name)}")
