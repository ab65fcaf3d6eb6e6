"""The packages that commands work on: woven, compared with what is on disk, and built."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator.disk.files import display_path, entries_below, kind_of, sha256
from generator.disk.lock import LOCK, Combination, Fingerprints, read_lock, with_records
from generator.disk.parallel import in_parallel
from generator.disk.project import PACKAGES, Project
from generator.disk.status import JOURNAL, PackageStatus, check_folder, compare_with_disk
from generator.disk.write import write_lock, write_package
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.package.package import Package
    from generator.recipe.library import Library


def weave_package(architecture: str, target: str, library: Library, parts: tuple[str, ...]) -> Package:
    """Weaves in memory; imported late, because the libraries behind it take most of a short command's time."""
    from generator.weaver import weave as run

    return run(architecture, target, library, parts=parts)


@dataclass(frozen=True)
class PackageBuilder:
    """A package that a command asks for.

    Attributes:
        prints: hashes taken before, shared by all that are asked for together.
        out: the folder that the package's folder goes into.
    """

    project: Project
    combination: Combination
    prints: Fingerprints
    out: Path

    @property
    def folder(self) -> Path:
        return Path(os.path.abspath(self.out)) / self.combination.name

    def uses(self, sources: Collection[str]) -> bool:
        """Whether it is made from one of these sources, as far as is known."""
        try:
            return not read_lock(self.folder, self.combination).inputs.keys().isdisjoint(sources)
        except LoomError:
            return True

    def reasons(self) -> list[str]:
        """Why the lock cannot say what a build makes now; empty where it can."""
        try:
            lock = read_lock(self.folder, self.combination)
            other = [] if lock.parts == self.combination.parts else ["it has other parts"]
            return other + self.prints.changes(lock)
        except LoomError as error:
            return [f"{LOCK} {error.message}"]

    def package(self, library: Library | None = None) -> Package:
        """Weaves it now, or from another library."""
        architecture, target, parts = self.combination
        try:
            return weave_package(architecture, target, library or self.project.library(), parts)
        except LoomError as error:
            if error.where or self.combination not in (self.project.listed() or ()):
                raise
            raise LoomError(error.message, display_path(self.project.generated / PACKAGES), error.remedy) from None

    def woven(self) -> dict[str, bytes]:
        """The bytes of all files, the map and the lock included."""
        return with_records(self.package(), self.prints)

    def status(self, full: bool = False, whole: bool = False) -> PackageStatus:
        """Compares what is on disk with what a build makes now, by hashes alone where the lock can be trusted.

        Args:
            full: weave it again, whatever its lock says.
            whole: expect its files to be there, also where its lock alone is.
        """
        check_folder(self.folder)
        reasons = self.reasons()
        made = self.woven() if full or reasons else None
        wanted = _hashes(made) if made else read_lock(self.folder, self.combination).files
        found = compare_with_disk(self.folder, self.combination, wanted, self.only_lock and not whole)
        return replace(found, reasons=reasons, made=made)

    @property
    def at_home(self) -> bool:
        return self.folder == Path(os.path.abspath(self.project.generated)) / self.combination.name

    @property
    def by_hand(self) -> bool:
        """Whether it is a package that people own, in its place."""
        there = kind_of(self.folder / LOCK) == "file"
        return self.at_home and there and self.combination in self.project.by_hand()

    @property
    def uncommitted(self) -> bool:
        """Whether it is a package whose lock alone is committed, in its place."""
        return self.at_home and self.combination in self.project.uncommitted()

    @property
    def only_lock(self) -> bool:
        """Whether it is a package that is not committed, and none of its files is there."""
        if not self.uncommitted or kind_of(self.folder / LOCK) or kind_of(self.folder / JOURNAL):
            return False
        try:
            paths = list(read_lock(self.folder, self.combination).outputs)
        except LoomError:
            paths = entries_below(self.folder)
        return not any(kind_of(self.folder / path) for path in paths)

    def build(self, force: bool = False, dry_run: bool = False, lock_is_enough: bool = False) -> PackageStatus | None:
        """Builds it.

        Args:
            force: overwrite and delete also files that gen does not own.
            dry_run: write nothing.
            lock_is_enough: of a package that is not committed, and that nobody built here, write the lock alone.

        Returns:
            How its files stood; where some are blocked and `force` is not given, nothing was written. None for a
            package that people own.
        """
        if self.by_hand:
            return None
        found = self.status(whole=not lock_is_enough)
        if found.only_lock:
            found = replace(found, files=[file for file in found.files if file.path == LOCK])
        if dry_run or not (found.differs or self.uncommitted):
            return found
        made = found.made or self.woven() if found.differs else {}
        if found.differs and not found.only_lock:
            found = write_package(self.folder, self.combination, made, force)
        if self.uncommitted and (force or not found.blocked):
            text = made[LOCK].decode() if made else read_lock(self.folder, self.combination).text
            write_lock(self.project, self.combination.name, text)
        return found


def _hashes(files: dict[str, bytes]) -> dict[str, str]:
    return {path: sha256(data) for path, data in files.items()}


def every_package(project: Project, out: Path | None = None) -> list[PackageBuilder]:
    """The packages that are kept, in the project's folder or in another one."""
    prints = Fingerprints(project.roots)
    return [
        PackageBuilder(project, combination, prints, out or project.generated) for combination in project.packages()
    ]


def each_package(
    job: Callable, project: Project, *options: Any, full: bool = False, out: Path | None = None, report: Any = None
) -> Iterator[tuple[str, Any]]:
    """Does something to every package that is kept, those that need weaving in parallel.

    Args:
        job: called with an `PackageBuilder` and the options.
        full: whether all are woven.
        out: the folder that they are in; the project's by default.
        report: called for each package that had to be woven, with its number, how many there are, and its name.

    Returns:
        For each its name, and what the job returned or the LoomError that it raised.
    """
    packages = every_package(project, out)
    heavy = [full or bool(builder.reasons()) for builder in packages]
    results = in_parallel(job, [(builder, *options) for builder in packages], heavy)
    for number, (builder, slow, result) in enumerate(zip(packages, heavy, results, strict=True), 1):
        if slow and report:
            report(number, len(packages), builder.combination.name)
        yield builder.combination.name, result
