"""Finds how a package on disk is not what a build makes, with the command that fixes it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from generator.commands.own import count_changes, find_conflicts
from generator.commands.packages import PackageBuilder
from generator.disk.files import GONE, display_path, kind_of
from generator.disk.lock import LOCK, LOCKS, Combination, read_lock, read_locks
from generator.disk.project import PACKAGES, Project
from generator.disk.status import EDITED, FOREIGN, MISSING, ORPHAN, RECORDS, STALE, WINDOWS, PackageStatus
from generator.errors import LoomError

OWNED, OWN, UNCHECKED, UNCOMMITTED = "owned", "own", "unchecked", "uncommitted"
NO_FAULT = (OWNED, OWN, UNCOMMITTED)


class Finding(NamedTuple):
    """One thing that is not as a build makes it.

    Attributes:
        state: edited, stale, missing, orphan or foreign, as in `FileStatus`; unchecked, of what was expected to be
            checked; no faults are owned, of a package, own, of a path that is named as not gen's, and uncommitted.
        path: of the file or the package's folder, as messages give it.
        reason: what is wrong and, where no command fixes it, what to do.
        command: what fixes it, '' where somebody has to decide.
    """

    state: str
    package: str
    path: str
    reason: str
    command: str = ""


def check_package(builder: PackageBuilder, own: list[str], full: bool) -> list[Finding]:
    """Checks one package.

    Args:
        own: the paths that packages.toml names as not gen's.
        full: weave it again, whatever its lock says.
    """
    name, build, shown = builder.combination.name, builder.combination.command, display_path(builder.folder)
    if not kind_of(builder.folder) and not builder.only_lock:
        return [Finding(MISSING, name, shown, "this package was never built, or is gone", build)]
    if builder.by_hand:
        return _check_owned(builder, shown)
    if builder.combination in builder.project.by_hand():
        reason = "is gone, and says what the edits of this package began from: take it back from git"
        return [Finding(MISSING, name, f"{shown}/{LOCK}", reason, f"git restore {shown}/{LOCK}")]
    if gone := _lost_sources(builder.project, builder.combination):
        return [Finding(ORPHAN, name, shown, gone)]
    found = builder.status(full)
    findings = list[Finding]()
    if builder.uncommitted and not found.only_lock:
        findings, found = _check_uncommitted(builder, found)
    windows = [file for file in found.files if file.reason == WINDOWS]
    if windows and all(file.reason == WINDOWS for file in found.blocked):
        found = replace(found, files=[file for file in found.files if file not in windows])
        findings.append(_of_windows(builder, f"{shown}/{windows[0].path}", len(windows)))
    for file in found.files:
        path, state, reason = file.path, file.state, file.reason
        command = f"{build} --force" if file.is_work else build
        if state == FOREIGN:
            if is_listed(f"{name}/{path}", own):
                continue
            reason, command = f"{reason}; {advise_own(f'{name}/{path}')}", ""
        elif path == LOCK and state == (MISSING if found.only_lock else EDITED):
            reason = found.reasons[0].removeprefix(f"{LOCK} ")
            reason = f"has no lock of {name}" if reason == GONE else reason
        elif file.is_work:
            reason = f"{reason}; gen pull {name} or gen own {name} keeps that, and this gives it up:"
        elif state == STALE and found.reasons:
            if found.write == [LOCK] and not found.remove:
                reason = "the files are right, but the lock is not"
            reason = f"{reason}: {_few(found.reasons)}"
        if state:
            findings.append(Finding(state, name, found.place(path), reason, command))
    return [*findings, *_odd_files(builder, [file.path for file in found.files if file.wanted and not file.state])]


def _check_owned(builder: PackageBuilder, shown: str) -> list[Finding]:
    """Checks a package that people own; that it differs is no fault, but a conflict that was left in it is."""
    name = builder.combination.name
    try:
        lines, files = count_changes(builder.folder, builder.combination)
        left = list(find_conflicts(builder.folder, builder.combination))
    except LoomError as error:
        return [Finding(EDITED, name, error.where or shown, error.message, error.remedy or "")]
    many = f"{lines} line{'' if lines == 1 else 's'} changed in {files} file{'' if files == 1 else 's'}"
    late = f"; since then {_few(reasons)}" if (reasons := builder.reasons()) else ""
    reason = "a conflict was left at line {}: decide it, and take the marks out"
    conflicts = [Finding(EDITED, name, f"{shown}/{path}", reason.format(line)) for path, line in left]
    return [*conflicts, Finding(OWNED, name, shown, f"{many}{late}", f"gen update {name}" if late else "")]


def _check_uncommitted(builder: PackageBuilder, found: PackageStatus) -> tuple[list[Finding], PackageStatus]:
    """Checks a package that is not committed and is there, in part or whole; the second value is left to tell."""
    name, build, place = builder.combination.name, builder.combination.command, builder.project.generated
    if gone := [file for file in found.files if file.state == MISSING and file.path not in RECORDS]:
        count = sum(file.wanted and file.path not in RECORDS for file in found.files)
        reason = f"{len(gone)} of the {count} files of this package are gone; all of them, or none, should be there"
        left = replace(found, files=[file for file in found.files if file.state != MISSING])
        return [Finding(MISSING, name, found.shown, reason, build)], left
    if found.differs:
        return [], found
    with suppress(LoomError):
        if read_locks(place).get(name) == read_lock(builder.folder, builder.combination).text:
            return [], found
    return [Finding(STALE, name, display_path(place / LOCKS), f"has not the lock of the files of {name}", build)], found


def _of_windows(builder: PackageBuilder, first: str, count: int) -> Finding:
    reason = f"{WINDOWS}, and {count - 1} other files too; with the line '* text=auto eol=lf' in .gitattributes, this "
    reason += "checks out again what git has, of the sources too (commit your changes first):"
    sources = [builder.project.root / name for name in ("fragments", "templates", "targets")]
    places = [builder.project.generated, *(place for place in sources if place.is_dir())]
    folders = " ".join(shlex.quote(display_path(place)) for place in places)
    fix = f"git ls-files -z {folders} | xargs -0 rm -f && git checkout -- {folders}"
    return Finding(EDITED, builder.combination.name, first, reason, fix)


def _odd_files(builder: PackageBuilder, paths: list[str]) -> Iterator[Finding]:
    """Files of the right content with another mode, and compiled ones that Python runs in place of a module."""
    name = builder.combination.name
    paths = [path for path in paths if kind_of(builder.folder / path)]  # a lock may stand for them
    run = [path for path in paths if (builder.folder / path).lstat().st_mode & 0o111]
    for path in run if len(run) < len(paths) else ():  # a disk without modes says so of all
        shown = display_path(builder.folder / path)
        yield Finding(EDITED, name, shown, "is executable, which gen makes no file", f"chmod 644 {shlex.quote(shown)}")
    for compiled in sorted(builder.folder.rglob("__pycache__/*.pyc")):
        with suppress(OSError), compiled.open("rb") as file:
            if int.from_bytes(file.read(8)[4:], "little") & 0b11 == 0b01:  # PEP 552: a hash that is not checked
                reason = "runs in place of its module, whatever that says: its hash is not checked"
                yield Finding(
                    FOREIGN, name, display_path(compiled), reason, f"rm {shlex.quote(display_path(compiled))}"
                )


def _few(reasons: list[str]) -> str:
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return ", ".join(reasons[:3]) + more


def _lost_sources(project: Project, combination: Combination) -> str:
    """Why no build can make a package any more and what to do about it, '' where one can."""
    sources = {
        f"architecture {combination.architecture}": f"templates/architectures/{combination.architecture}.toml",
        f"target {combination.target}": f"targets/{combination.target}/target.toml",
    }
    gone = [name for name, path in sources.items() if not any((root / path).exists() for root in project.roots)]
    listed = f" and take it out of {PACKAGES}" if gone and project.listed() is not None else ""
    return f"there is no {' and no '.join(gone)} any more; remove this folder{listed}" if gone else ""


def advise_own(path: str) -> str:
    """Says what to do about a path below the output folder that gen did not make."""
    return f"remove it, or name it in {PACKAGES}: own = [{json.dumps(path, ensure_ascii=False)}]"


def is_listed(path: str, own: list[str]) -> bool:
    """Whether a path below the output folder is one that packages.toml names as not gen's."""
    return any(f"{path}/".startswith(f"{entry}/") for entry in own)


def own_paths(project: Project) -> list[str]:
    """The paths that packages.toml names as not gen's; one that is not there, or that gen makes, is an error."""
    shown = display_path(project.generated / PACKAGES)
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
