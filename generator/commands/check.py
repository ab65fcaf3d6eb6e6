"""Says whether the packages on disk are what a build makes, and which command fixes each that is not."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from generator.commands.build import Asked, each_package
from generator.commands.expected import Expected, unchecked
from generator.commands.owned import changed_lines, conflicts_left
from generator.disk.lock import LOCK, LOCKS, Combination, read_lock, read_locks
from generator.disk.look import GONE, is_cache, kind_of, show
from generator.disk.project import PACKAGES, SETTINGS, Project
from generator.disk.status import EDITED, FOREIGN, MISSING, ORPHAN, RECORDS, STALE, WINDOWS, Compared
from generator.disk.tracked import surprises, uncommitted
from generator.disk.uncommitted import IGNORE, ignored_now, ignored_wanted, is_own_ignored
from generator.errors import LoomError

OWNED, OWN, UNCHECKED, UNCOMMITTED = "owned", "own", "unchecked", "uncommitted"
NO_FAULT = (OWNED, OWN, UNCOMMITTED)


class Finding(NamedTuple):
    """One thing that is not as a build makes it.

    Attributes:
        state: edited, stale, missing, orphan or foreign, as in `Status`; unchecked, of what was expected to be checked;
            no faults are owned, of a package, own, of a path that is named as not gen's, and uncommitted.
        path: of the file or the package's folder, as messages give it.
        reason: what is wrong and, where no command fixes it, what to do.
        command: what fixes it, '' where somebody has to decide.
    """

    state: str
    package: str
    path: str
    reason: str
    command: str


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
    findings, errors = [*_strangers(project, own), *_uncommitted(project)], list[LoomError]()
    if not project.packages() and not findings:
        reason, correct = "is not there", f"run gen in the folder that has {SETTINGS}, or below it"
        if kind_of(project.root / SETTINGS):
            reason, correct = f"is not there, and {SETTINGS} has the packages in it", f"correct {SETTINGS}"
        if project.generated.is_dir():
            reason = "has no package that gen made"
        remedy = f"Build one with gen build ARCH --target=T, list it in {PACKAGES}, or {correct}."
        raise LoomError(f"{reason}: nothing was checked", show(project.generated), remedy)
    for _, result in each_package(check_package, project, own, full, full=full, report=report):
        if isinstance(result, LoomError):
            errors.append(result)
        else:
            findings += result
    told = {finding.path for finding in findings}
    findings += [finding for finding in _surprises(project, own, full) if finding.path not in told]
    findings += [Finding(UNCHECKED, *what, "") for what in (unchecked(project, expected) if expected else ())]
    reason = f"is named as not gen's in {PACKAGES} (own): not checked"
    findings += [Finding(OWN, path.split("/")[0], show(project.generated / path), reason, "") for path in own]
    if full and (paths := uncommitted(project.generated)):
        shown = show(project.generated / paths[0])
        more = f" and {len(paths) - 1} more differ" if len(paths) > 1 else " differs"
        reason = f"{more[1:]} from the last commit: what is on disk was checked, not what is committed"
        findings.append(Finding(UNCOMMITTED, paths[0].split("/")[0], shown, reason, ""))
    return sorted(findings, key=lambda finding: (finding.package, finding.path)), errors


def _surprises(project: Project, own: list[str], full: bool) -> list[Finding]:
    """What git has of the packages that does not show on disk."""
    known = {combination.name: combination in project.by_hand() for combination in project.packages()}
    at_root = project.generated.resolve() == project.root
    findings = []
    for path, hidden, reason, command in surprises(project.generated, full):
        package = path.split("/")[0]
        if is_own(path, own) or known.get(package, at_root) or (path == IGNORE and is_own_ignored(project)):
            continue
        findings.append(
            Finding(FOREIGN if hidden else EDITED, package, show(project.generated / path), reason, command)
        )
    return findings


def _uncommitted(project: Project) -> list[Finding]:
    """Whether git passes over what is not committed, and has locks of nothing else."""
    findings = []
    if (now := ignored_now(project)) != ignored_wanted(project):
        reason = f"does not say which packages of {PACKAGES} have committed = false"
        shown = show(project.generated / IGNORE)
        findings.append(Finding(STALE if now else MISSING, IGNORE, shown, reason, "gen build --all"))
    with suppress(LoomError):  # of a file that cannot be read each package tells
        names = {combination.name for combination in project.uncommitted()}
        if more := sorted(read_locks(project.generated).keys() - names):
            reason = f"has the lock of {more[0]}, which is not a package with committed = false"
            findings.append(Finding(ORPHAN, LOCKS, show(project.generated / LOCKS), reason, "gen build --all"))
    return findings


def check_package(asked: Asked, own: list[str], full: bool) -> list[Finding]:
    """What is wrong with one package."""
    name, build, shown = asked.combination.name, asked.combination.command, show(asked.folder)
    if not kind_of(asked.folder) and not asked.only_lock:
        return [Finding(MISSING, name, shown, "this package was never built, or is gone", build)]
    if asked.by_hand:
        return _owned(asked, shown)
    if asked.combination in asked.project.by_hand():
        reason = "is gone, and says what the edits of this package began from: take it back from git"
        return [Finding(MISSING, name, f"{shown}/{LOCK}", reason, f"git restore {shown}/{LOCK}")]
    if gone := _gone(asked.project, asked.combination):
        return [Finding(ORPHAN, name, shown, gone, "")]
    found = asked.survey(full)
    findings = list[Finding]()
    if asked.uncommitted and not found.only_lock:
        findings, found = _in_part(found, name, shown, build)
        if not findings and not found.differs:
            findings = _other_lock(asked, build)
    if all(file.reason == WINDOWS for file in found.files if file.state == EDITED and file.path not in RECORDS):
        windows = [file for file in found.files if file.reason == WINDOWS]
        found = replace(found, files=[file for file in found.files if file not in windows])
        if windows:
            reason = f"{WINDOWS}, and {len(windows) - 1} other files too; with the line '* text=auto eol=lf' in "
            reason += (
                ".gitattributes, this checks out again what git has, of the sources too (commit your changes first):"
            )
            folders = " ".join(shlex.quote(show(place)) for place in _tracked_places(asked.project))
            fix = f"git ls-files -z {folders} | xargs -0 rm -f && git checkout -- {folders}"
            findings.append(Finding(EDITED, name, f"{shown}/{windows[0].path}", reason, fix))
    for path, _, state, reason in found.files:
        command = f"{build} --force" if state == EDITED and path not in RECORDS else build
        if state == FOREIGN:
            if is_own(f"{name}/{path}", own):
                continue
            reason, command = f"{reason}; {_advice(f'{name}/{path}')}", ""
        elif path == LOCK and state == (MISSING if found.only_lock else EDITED):
            reason = found.reasons[0].removeprefix(f"{LOCK} ")
            reason = f"has no lock of {name}" if reason == GONE else reason
        elif state == EDITED and path not in RECORDS:
            reason = f"{reason}; gen pull {name} or gen own {name} keeps that, and this gives it up:"
        elif state == STALE and found.reasons:
            if found.write == [LOCK] and not found.remove:
                reason = "the files are right, but the lock is not"
            reason = f"{reason}: {_few(found.reasons)}"
        if state:
            findings.append(Finding(state, name, found.place(path), reason, command))
    return [*findings, *_odd_files(asked, name, [file.path for file in found.files if file.wanted and not file.state])]


def _in_part(found: Compared, name: str, shown: str, build: str) -> tuple[list[Finding], Compared]:
    """What is said of a package that is not committed and is there in part; and the rest of what is found."""
    gone = [file for file in found.files if file.state == MISSING and file.path not in RECORDS]
    if not gone:
        return [], found
    count = sum(file.wanted and file.path not in RECORDS for file in found.files)
    reason = f"{len(gone)} of the {count} files of this package are gone; all of them, or none, should be there"
    left = replace(found, files=[file for file in found.files if file.state != MISSING])
    return [Finding(MISSING, name, shown, reason, build)], left


def _other_lock(asked: Asked, build: str) -> list[Finding]:
    """What is said of a package that is not committed, where its lock there is not that of its files here."""
    name, place = asked.combination.name, asked.project.generated
    with suppress(LoomError):
        if read_locks(place).get(name) == read_lock(asked.folder, asked.combination).text:
            return []
    return [Finding(STALE, name, show(place / LOCKS), f"has not the lock of the files of {name}", build)]


def _tracked_places(project: Project) -> list[Path]:
    """What a project has of packages and sources."""
    names = [project.root / name for name in ("fragments", "templates", "targets")]
    return [project.generated, *(place for place in names if place.is_dir())]


def _odd_files(asked: Asked, name: str, paths: list[str]) -> Iterator[Finding]:
    """Files of the right content with another mode, and compiled ones that Python runs in place of a module."""
    paths = [path for path in paths if kind_of(asked.folder / path)]  # a lock may stand for them
    run = [path for path in paths if (asked.folder / path).lstat().st_mode & 0o111]
    for path in run if len(run) < len(paths) else ():  # a disk without modes says so of all
        shown = show(asked.folder / path)
        yield Finding(EDITED, name, shown, "is executable, which gen makes no file", f"chmod 644 {shlex.quote(shown)}")
    for compiled in sorted(asked.folder.rglob("__pycache__/*.pyc")):
        with suppress(OSError), compiled.open("rb") as file:
            if int.from_bytes(file.read(8)[4:], "little") & 0b11 == 0b01:  # PEP 552: a hash that is not checked
                reason = "runs in place of its module, whatever that says: its hash is not checked"
                yield Finding(FOREIGN, name, show(compiled), reason, f"rm {shlex.quote(show(compiled))}")


def _owned(asked: Asked, shown: str) -> list[Finding]:
    """How a package that people own stands; that it differs is no fault, but a conflict that was left in it is."""
    name = asked.combination.name
    try:
        lines, files = changed_lines(asked.folder, asked.combination)
        left = list(conflicts_left(asked.folder, asked.combination))
    except LoomError as error:
        return [Finding(EDITED, name, error.where or shown, error.message, error.remedy or "")]
    many = f"{lines} line{'' if lines == 1 else 's'} changed in {files} file{'' if files == 1 else 's'}"
    late = f"; since then {_few(reasons)}" if (reasons := asked.reasons()) else ""
    reason = "a conflict was left at line {}: decide it, and take the marks out"
    conflicts = [Finding(EDITED, name, f"{shown}/{path}", reason.format(line), "") for path, line in left]
    return [*conflicts, Finding(OWNED, name, shown, f"{many}{late}", f"gen update {name}" if late else "")]


def _few(reasons: list[str]) -> str:
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return ", ".join(reasons[:3]) + more


def _gone(project: Project, combination: Combination) -> str:
    """Why no build can make a package any more and what to do about it, '' where one can."""
    sources = {
        f"architecture {combination.architecture}": f"templates/architectures/{combination.architecture}.toml",
        f"target {combination.target}": f"targets/{combination.target}/target.toml",
    }
    gone = [name for name, path in sources.items() if not any((root / path).exists() for root in project.roots)]
    listed = f" and take it out of {PACKAGES}" if gone and project.listed() is not None else ""
    return f"there is no {' and no '.join(gone)} any more; remove this folder{listed}" if gone else ""


def _strangers(project: Project, own: list[str]) -> list[Finding]:
    """What lies beside the packages and is none of them."""
    names = [PACKAGES, LOCKS, *(combination.name for combination in project.packages())]
    findings = []
    if project.generated.resolve() == project.root:  # a project of one's own, whose other files are nobody's concern
        return []
    for name in os.listdir(project.generated) if project.generated.is_dir() else ():
        if name in names or is_cache(name) or is_own(name, own):
            continue
        shown, state, reason = show(project.generated / name), FOREIGN, "is not a package that is kept here"
        with suppress(LoomError):
            if read_lock(project.generated / name).combination.name == name:
                state, reason = ORPHAN, f"{PACKAGES} does not list this package"
        findings.append(Finding(state, name, shown, f"{reason}; {_advice(name)}", ""))
    return findings


def _advice(path: str) -> str:
    return f"remove it, or name it in {PACKAGES}: own = [{json.dumps(path, ensure_ascii=False)}]"


def is_own(path: str, own: list[str]) -> bool:
    """Whether a path below the output folder is one that packages.toml names as not gen's."""
    return any(f"{path}/".startswith(f"{entry}/") for entry in own)


def own_paths(project: Project) -> list[str]:
    """The paths that packages.toml names as not gen's."""
    shown = show(project.generated / PACKAGES)
    made = [PACKAGES, LOCKS]
    for name in (combination.name for combination in project.packages()):
        made += [name, f"{name}/{LOCK}"]
        with suppress(LoomError):
            made += [f"{name}/{path}" for path in read_lock(project.generated / name).outputs]
    for path in project.own():
        if not kind_of(project.generated / path):
            raise LoomError(f"own names {path}, which is not there", shown, "Take it out of the list.")
        if any(f"{file}/".startswith(f"{path}/") for file in made):
            remedy = "Take it out of the list: own is for what gen has nothing to do with."
            raise LoomError(f"own names {path}, which gen makes", shown, remedy)
    return project.own()
