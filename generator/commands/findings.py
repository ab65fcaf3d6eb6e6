"""Finds the differences of one package from a build, each with the command that fixes it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from generator.code.hunks import hunks
from generator.commands.packages import PackageBuilder
from generator.disk.built import BASE, read_base
from generator.disk.files import GONE, display_path, kind_of, list_entries, read_if_file, sha256
from generator.disk.git import find_conflict_mark, find_old_version
from generator.disk.lock import LOCK, LOCKS, MAP, Combination, read_lock, read_locks
from generator.disk.project import PACKAGES, Project
from generator.disk.status import CRLF, EDITED, FOREIGN, MISSING, ORPHAN, RECORDS, STALE, PackageStatus
from generator.errors import LoomError

OWNED, OWN, UNCHECKED, UNCOMMITTED = "owned", "own", "unchecked", "uncommitted"
NO_FAULT = (OWNED, OWN, UNCOMMITTED)


class Finding(NamedTuple):
    """A difference from a build.

    Attributes:
        state: one of `generator.disk.status.MEANINGS`; or "unchecked", for a path that the baseline checked. "owned",
            for a package, "own", for an unmanaged path, and "uncommitted" are not faults.
        path: of the file or the package's folder, as messages print it.
        reason: states what is wrong and, without a command, what to do.
        command: fixes it; "" if somebody has to decide.
    """

    state: str
    package: str
    path: str
    reason: str
    command: str = ""

    @classmethod
    def at(cls, project: Project, state: str, path: str, reason: str, command: str = "") -> Finding:
        """Creates a finding about a path below the output folder."""
        return cls(state, path.split("/")[0], display_path(project.generated / path), reason, command)


def check_package(builder: PackageBuilder, unmanaged: list[str], full: bool) -> list[Finding]:
    """Checks one package.

    Args:
        unmanaged: as in `PackageListing`.
        full: weaves the package whatever its lock says.
    """
    name, build, label = builder.combination.name, builder.combination.command, display_path(builder.folder)
    if not kind_of(builder.folder) and not builder.is_lock_only:
        return [Finding(MISSING, name, label, "this package was never built, or is gone", build)]
    if builder.is_owned:
        return _check_owned(builder, label)
    if builder.combination in builder.project.listing.owned:
        reason = "is gone, and it records the text that the edits of this package began from: take it back from git"
        return [Finding(MISSING, name, f"{label}/{LOCK}", reason, f"git restore {label}/{LOCK}")]
    if reason := _explain_lost_sources(builder.project, builder.combination):
        return [Finding(ORPHAN, name, label, reason)]
    status, findings = builder.compare(full), list[Finding]()
    if builder.is_uncommitted and not status.is_lock_only:
        findings, status = _check_uncommitted(builder, status)
    crlf = [file for file in status.files if file.reason == CRLF]
    if crlf and all(file.reason == CRLF for file in status.blocked):
        status = replace(status, files=[file for file in status.files if file not in crlf])
        findings.append(_report_crlf(builder, f"{label}/{crlf[0].path}", len(crlf)))
    for file in status.files:
        path, state, reason = file.path, file.state, file.reason
        command = f"{build} --force" if file.is_protected else build
        if state == FOREIGN:
            if is_unmanaged(f"{name}/{path}", unmanaged):
                continue
            reason, command = f"{reason}; {suggest_unmanaged(f'{name}/{path}')}", ""
        elif path == LOCK and state == (MISSING if status.is_lock_only else EDITED):
            reason = status.reasons[0].removeprefix(f"{LOCK} ")
            reason = f"has no lock of {name}" if reason == GONE else reason
        elif file.is_protected:
            reason = f"{reason}; gen pull {name} or gen own {name} keeps that, and this gives it up:"
        elif state == STALE and status.reasons:
            if status.to_write == [LOCK] and not status.to_remove:
                reason = "the files are right, but the lock is not"
            reason = f"{reason}: {_join_reasons(status.reasons)}"
        if state:
            findings.append(Finding(state, name, status.label_file(path), reason, command))
    good = [file.path for file in status.files if file.is_output and not file.state]
    return [*findings, *_check_modes_and_caches(builder, good)]


def _check_owned(builder: PackageBuilder, label: str) -> list[Finding]:
    """Counts the changed lines of a package that people own; only a conflict that a merge left in it is a fault."""
    name, folder, findings, lines, files = builder.combination.name, builder.folder, list[Finding](), 0, 0
    try:
        outputs, base = read_lock(folder, builder.combination).outputs, read_base(folder)
        for path in sorted(outputs.keys() - {MAP}):
            data = read_if_file(folder / path)
            if sha256(data) == outputs[path]:
                continue
            text = data.decode(errors="replace")
            woven = base.get(path) or find_old_version(folder, path, outputs[path]) or ""
            changes = hunks(woven.split("\n"), text.split("\n"))
            lines += sum(max(len(hunk.before), len(hunk.after)) for hunk in changes)
            files += bool(changes)
            if line := find_conflict_mark(text):
                reason = f"a conflict was left at line {line}: decide it, and take the marks out"
                findings.append(Finding(EDITED, name, f"{label}/{path}", reason))
    except LoomError as error:
        return [Finding(EDITED, name, error.where or label, error.message, error.remedy or "")]
    count = f"{lines} line{'' if lines == 1 else 's'} changed in {files} file{'' if files == 1 else 's'}"
    made = {*outputs, MAP, LOCK, BASE}
    if more := [path for path in list_entries(folder) if path not in made]:
        count += f", and {_join_reasons(more)} added"
    late = f"; since then {_join_reasons(reasons)}" if (reasons := builder.find_stale_reasons()) else ""
    return [*findings, Finding(OWNED, name, label, f"{count}{late}", f"gen update {name}" if late else "")]


def _check_uncommitted(builder: PackageBuilder, status: PackageStatus) -> tuple[list[Finding], PackageStatus]:
    """Checks the lock of an uncommitted package that has files; returns findings and the status without them."""
    name, build, generated = builder.combination.name, builder.combination.command, builder.project.generated
    if gone := [file for file in status.files if file.state == MISSING and file.path not in RECORDS]:
        count = sum(file.is_output and file.path not in RECORDS for file in status.files)
        reason = f"{len(gone)} of the {count} files of this package are gone; all of them, or none, should be there"
        rest = replace(status, files=[file for file in status.files if file.state != MISSING])
        return [Finding(MISSING, name, status.label, reason, build)], rest
    if status.differs:
        return [], status
    with suppress(LoomError):
        if read_locks(generated).get(name) == read_lock(builder.folder, builder.combination).text:
            return [], status
    reason = f"does not have the lock of the files of {name}"
    return [Finding(STALE, name, display_path(generated / LOCKS), reason, build)], status


def _report_crlf(builder: PackageBuilder, first: str, count: int) -> Finding:
    more = f", and {count - 1} other files too" if count > 1 else ""
    reason = f"{CRLF}{more}; with the line '* text=auto eol=lf' in .gitattributes, this "
    reason += "checks out again what git has, of the sources too (commit your changes first):"
    sources = [builder.project.root / name for name in ("fragments", "templates", "targets")]
    places = [builder.project.generated, *(place for place in sources if place.is_dir())]
    folders = " ".join(shlex.quote(display_path(place)) for place in places)
    fix = f"git ls-files -z {folders} | xargs -0 rm -f && git checkout -- {folders}"
    return Finding(EDITED, builder.combination.name, first, reason, fix)


def _check_modes_and_caches(builder: PackageBuilder, paths: list[str]) -> Iterator[Finding]:
    """Finds executable files, and compiled files that Python runs whatever their module says."""
    name = builder.combination.name
    paths = [path for path in paths if kind_of(builder.folder / path)]  # files of a lock may not exist
    executable = [path for path in paths if (builder.folder / path).lstat().st_mode & 0o111]
    for path in executable if len(executable) < len(paths) else ():  # without modes, every file seems executable
        label = display_path(builder.folder / path)
        yield Finding(
            EDITED, name, label, "is executable, unlike any file that gen makes", f"chmod 644 {shlex.quote(label)}"
        )
    for compiled in sorted(builder.folder.rglob("__pycache__/*.pyc")):
        with suppress(OSError), compiled.open("rb") as file:
            if int.from_bytes(file.read(8)[4:], "little") & 0b11 == 0b01:  # PEP 552: a hash that is not checked
                label = display_path(compiled)
                reason = "runs in place of its module, whatever that says: its hash is not checked"
                yield Finding(FOREIGN, name, label, reason, f"rm {shlex.quote(label)}")


def _join_reasons(reasons: list[str]) -> str:
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return ", ".join(reasons[:3]) + more


def _explain_lost_sources(project: Project, combination: Combination) -> str:
    """Explains that the architecture or the target of a package is gone, and what to do; "" if both exist."""
    sources = {
        f"architecture {combination.architecture}": f"templates/architectures/{combination.architecture}.toml",
        f"target {combination.target}": f"targets/{combination.target}/target.toml",
    }
    gone = [name for name, path in sources.items() if not any((root / path).exists() for root in project.roots)]
    listed = f" and take it out of {PACKAGES}" if gone and project.listing.packages is not None else ""
    return f"there is no {' and no '.join(gone)} any more; remove this folder{listed}" if gone else ""


def suggest_unmanaged(path: str) -> str:
    """Returns the remedy for a foreign path below the output folder."""
    return f"remove it, or name it in {PACKAGES}: own = [{json.dumps(path, ensure_ascii=False)}]"


def is_unmanaged(path: str, unmanaged: list[str]) -> bool:
    """Returns whether a path below the output folder is one of the unmanaged paths, or in one of them."""
    return any(f"{path}/".startswith(f"{entry}/") for entry in unmanaged)


def read_unmanaged_paths(project: Project) -> list[str]:
    """Returns the unmanaged paths in packages.toml; refuses one that does not exist or that gen makes."""
    managed = [PACKAGES, LOCKS]
    for name in (combination.name for combination in project.packages()):
        managed += [name, f"{name}/{LOCK}"]
        with suppress(LoomError):
            managed += [f"{name}/{path}" for path in read_lock(project.generated / name).outputs]
    for path in project.listing.unmanaged:
        if not kind_of(project.generated / path):
            where = project.listing.places[path]
            raise LoomError(f"own names {path}, which is not there", where, "Take it out of the list.")
        if any(f"{file}/".startswith(f"{path}/") for file in managed):
            remedy = "Take it out of the list: own is for what gen has nothing to do with."
            raise LoomError(f"own names {path}, which gen makes", project.listing.places[path], remedy)
    return project.listing.unmanaged
