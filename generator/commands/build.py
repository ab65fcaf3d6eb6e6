"""Builds packages: weaves where something changed, and writes what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator.commands.disk import sha256
from generator.commands.lock import LOCK, MAP, Combination, Fingerprints, Lock, read_lock
from generator.commands.parallel import in_parallel
from generator.commands.project import Project
from generator.commands.status import Compared, check_folder, compare
from generator.commands.write import write_package
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.library import Library
    from generator.package import Package


def weave(architecture: str, target: str, library: Library) -> Package:
    """Weaves in memory; imported late, because the libraries behind it take most of a short command's time."""
    from generator.weave import weave as run

    return run(architecture, target, library)


def woven(project: Project, combination: Combination, prints: Fingerprints) -> dict[str, bytes]:
    """The bytes of all files of a package, the map and the lock included.

    Raises:
        LoomError: a fragment, the architecture or the target is wrong.
    """
    from generator.sourcemap import dump  # late, as `weave`

    package = weave(*combination, project.library())
    files = {path: text.encode() for path, text in package.files.items()}
    files[MAP] = dump(package.origins).encode()
    outputs = {path: sha256(data) for path, data in files.items()}
    lock = Lock(*combination, prints.generator, prints.tools, package.inputs, outputs)
    return {**files, LOCK: lock.text.encode()}


def survey(
    project: Project, combination: Combination, prints: Fingerprints, folder: Path, full: bool = False
) -> Compared:
    """Compares a package with what a build makes now, by hashes alone where its lock can be trusted.

    Args:
        folder: where it is.
        full: weave it again, whatever its lock says.

    Raises:
        LoomError: the sources are wrong, or something stands in the folder that gen must not replace.
    """
    check_folder(folder)
    reasons = reasons_to_weave(combination, prints, folder)
    files = woven(project, combination, prints) if full or reasons else None
    if files is None:
        wanted = read_lock(folder, combination).files
    else:
        wanted = {path: sha256(data) for path, data in files.items()}
    return replace(compare(folder, combination, wanted), reasons=reasons, made=files)


def reasons_to_weave(combination: Combination, prints: Fingerprints, folder: Path) -> list[str]:
    """Why the lock of a package cannot say what a build makes now; empty where it can."""
    try:
        return prints.changes(read_lock(folder, combination))
    except LoomError as error:
        return [f"{LOCK} {error.message}"]


def build(
    project: Project,
    combination: Combination,
    prints: Fingerprints | None = None,
    out: Path | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> Compared:
    """Builds one package.

    Args:
        combination: what to build.
        prints: hashes taken before, to be used again.
        out: the folder that the package's folder goes into; the project's by default.
        force: overwrite and delete also files that gen does not own.
        dry_run: write nothing.

    Returns:
        How its files stood; where some are blocked and `force` is not given, nothing was written.

    Raises:
        LoomError: the sources are wrong, or the folder cannot be written.
    """
    folder, prints = folder_of(project, combination, out), prints or Fingerprints(project.roots)
    found = survey(project, combination, prints, folder)
    if dry_run or not found.differs:
        return found
    return write_package(folder, combination, found.made or woven(project, combination, prints), force)


def folder_of(project: Project, combination: Combination, out: Path | None = None) -> Path:
    return Path(os.path.abspath(out or project.generated)) / combination.name


def each_package(
    job: Callable,
    project: Project,
    *options: Any,
    full: bool = False,
    out: Path | None = None,
    report: Callable[[int, int, str], None] | None = None,
) -> Iterator[tuple[str, Any]]:
    """Does something to every package that is kept, those that need weaving in parallel.

    Args:
        job: called with the project, the combination, hashes taken before, and the options.
        full: whether all are woven.
        out: the folder that they are in; the project's by default.
        report: called for each package that had to be woven, with its number, how many there are, and its name.

    Returns:
        For each its name, and what the job returned or the LoomError that it raised.
    """
    prints, kept = Fingerprints(project.roots), project.packages()
    heavy = [full or bool(reasons_to_weave(c, prints, folder_of(project, c, out))) for c in kept]
    results = in_parallel(job, [(project, combination, prints, *options) for combination in kept], heavy)
    for number, (combination, slow, result) in enumerate(zip(kept, heavy, results, strict=True), 1):
        if slow and report:
            report(number, len(kept), combination.name)
        yield combination.name, result
