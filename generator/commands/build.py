"""Builds packages: weaves where something changed, and writes what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from generator.commands.lock import Fingerprints, read_lock, sha256
from generator.commands.project import LOCK, MAP, PACKAGES, Combination, Project
from generator.commands.write import JOURNAL, check_folder, plan_write, write_package
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.library import Library
    from generator.package import Package


@dataclass(frozen=True)
class Built:
    """What a build did, or in a dry run would do.

    Attributes:
        name: the package.
        folder: where it is, as messages give it.
        written, removed: paths in the package.
        blocked: path -> why it was left alone; where there is any, nothing was written.
        forced: whether blocked files were overwritten all the same.
        unchanged: the number of files that are as they should be.
    """

    name: str
    folder: str
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    blocked: dict[str, str] | None = None
    forced: bool = False
    unchanged: int = 0

    @property
    def summary(self) -> str:
        if self.blocked and not self.forced:
            return f"left alone, {len(self.blocked)} in the way"
        if not self.written and not self.removed:
            return "as it should be"
        removed = f", {len(self.removed)} removed" if self.removed else ""
        return f"{len(self.written)} written{removed}, {self.unchanged} unchanged"

    def refuse(self, command: str) -> None:
        """Turns files that stand in the way into an error.

        Args:
            command: the command that would overwrite them.

        Raises:
            LoomError: there are such files, and they were not overwritten.
        """
        if self.blocked and not self.forced:
            lines = "".join(f"\n  {self.folder}/{path} {reason}" for path, reason in self.blocked.items())
            remedy = f"Keep your change in a fragment, or give it up: {command} --force"
            raise LoomError(f"nothing was written, because gen would destroy work:{lines}", self.folder, remedy)


def weave(architecture: str, target: str, library: Library) -> Package:
    """Weaves in memory; imported late, because the libraries behind it take most of a short command's time."""
    from generator.weaver import weave as run

    return run(architecture, target, library)


def woven(project: Project, combination: Combination, prints: Fingerprints) -> tuple[Package, dict[str, bytes]]:
    """A package and the bytes of all its files, the map and the lock included.

    Raises:
        LoomError: a fragment, the architecture or the target is wrong.
    """
    from generator.sourcemap import dump

    package = weave(*combination, project.library())
    files = {path: text.encode() for path, text in package.files.items()}
    files[MAP] = dump(package.origins).encode()
    files[LOCK] = prints.lock(combination, package.inputs, files).text().encode()
    return package, dict(sorted(files.items()))


def is_current(folder: Path, combination: Combination, prints: Fingerprints) -> bool:
    """Whether a build would change nothing, told by hashes alone: of every input, tool and output."""
    try:
        lock = read_lock(folder, str(folder))
    except LoomError:
        return False
    if lock.combination != combination or (folder / JOURNAL).exists() or prints.changes(lock):
        return False
    for path, digest in lock.outputs.items():
        data = _bytes(folder / path)
        if data is None or sha256(data) != digest:
            return False
    # a lock that was edited by hand must be mended too
    return _bytes(folder / LOCK) == lock.text().encode()


def _bytes(path: Path) -> bytes | None:
    """The bytes of a plain file that can be read; anything else is not what a build leaves."""
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def build(
    project: Project,
    combination: Combination,
    out: Path | None = None,
    force: bool = False,
    dry_run: bool = False,
    prints: Fingerprints | None = None,
) -> Built:
    """Builds one package.

    Args:
        combination: what to build.
        out: the folder that the package's folder goes into; the project's by default.
        force: overwrite and delete also files that gen does not own.
        dry_run: write nothing.
        prints: hashes taken before, to be used again.

    Raises:
        LoomError: the sources are wrong, or the folder cannot be written.
    """
    out = Path(os.path.abspath(out or project.generated))
    folder, prints = out / combination.name, prints or Fingerprints(project.roots)
    shown = project.show(folder)
    check_folder(folder, shown)
    if is_current(folder, combination, prints):
        return Built(combination.name, shown, unchanged=len(read_lock(folder, shown).outputs) + 1)
    _, files = woven(project, combination, prints)
    if dry_run:
        plan = plan_write(folder, shown, files)
    else:
        plan = write_package(folder, shown, files, force)
    blocked = plan.blocked or None
    return Built(combination.name, shown, plan.write, plan.remove, blocked, force, len(plan.unchanged))


def build_all(
    project: Project,
    out: Path | None = None,
    force: bool = False,
    dry_run: bool = False,
    report: Callable[[int, int, Built | LoomError], None] | None = None,
) -> list[Built | LoomError]:
    """Builds every package that is kept, those that need weaving in parallel.

    Args:
        report: called for each package, in their order, with its number, how many there are, and what came of it.

    Returns:
        For each package what was done, or the error that stopped it; one error does not stop the others.

    Raises:
        LoomError: the list of packages cannot be read, or is empty.
    """
    combinations = project.packages()
    if not combinations:
        shown = project.show(project.generated)
        remedy = f"Build one with gen build ARCH --target=T, or list some in {shown}/{PACKAGES}."
        raise LoomError("there is no package to build", shown, remedy)
    results = []
    place = out or project.generated
    prints = Fingerprints(project.roots)
    jobs = [(project, combination, out, force, dry_run, prints) for combination in combinations]
    fresh = [is_current(place / combination.name, combination, prints) for combination in combinations]
    for number, result in enumerate(in_parallel(_build_job, jobs, len(jobs) - sum(fresh)), 1):
        results.append(result)
        if report:
            report(number, len(jobs), result)
    return results


def in_parallel(job: Callable, arguments: list, heavy: int) -> Iterable:
    """The results of a job for each argument, in their order.

    Args:
        job: a function at the top of a module, of one argument.
        heavy: how many of the jobs take long; processes are started for two or more.
    """
    workers = min(heavy, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if workers < 2:
        yield from map(job, arguments)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(job, arguments)


def _build_job(job: tuple) -> Built | LoomError:
    try:
        return build(*job)
    except LoomError as error:
        return error
