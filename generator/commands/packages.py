"""Weaves packages, compares them with the disk, and builds them, for all commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator.disk.files import kind_of, list_entries, sha256
from generator.disk.lock import LOCK, Combination, InputDigests, encode_package, read_lock
from generator.disk.parallel import run_parallel
from generator.disk.project import Project
from generator.disk.status import JOURNAL, PackageStatus, check_folder, compare_with_disk
from generator.disk.write import write_lock, write_package
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.package.package import Package
    from generator.recipe.library import Library


def weave_package(architecture: str, target: str, library: Library, parts: tuple[str, ...]) -> Package:
    """Weaves in memory. The weaver is imported late: its libraries take most of a short command's time."""
    from generator.code import black
    from generator.disk.formatted import FormattedTexts
    from generator.weaver import weave as run

    black.memory = black.memory or FormattedTexts()
    return run(architecture, target, library, parts=parts)


@dataclass(frozen=True)
class PackageBuilder:
    """A package that a command works on.

    Attributes:
        digests: shared by all packages of a command, so that each input is hashed once.
        out: the folder that has the package's folder.
    """

    project: Project
    combination: Combination
    digests: InputDigests
    out: Path

    @property
    def folder(self) -> Path:
        return Path(os.path.abspath(self.out)) / self.combination.name

    def may_use(self, sources: Collection[str]) -> bool:
        """Returns whether one of these sources is an input by the lock; True without a valid lock."""
        try:
            return not read_lock(self.folder, self.combination).inputs.keys().isdisjoint(sources)
        except LoomError:
            return True

    def find_stale_reasons(self) -> list[str]:
        """Lists the reasons why the lock cannot tell what a build makes now; empty if it can."""
        try:
            lock = read_lock(self.folder, self.combination)
            reasons = [] if lock.parts == self.combination.parts else ["it has other parts"]
            return reasons + self.digests.find_changes(lock)
        except LoomError as error:
            return [f"{LOCK} {error.message}"]

    def weave(self, library: Library | None = None) -> Package:
        """Weaves the package from the project's library, or from another one."""
        architecture, target, parts = self.combination
        try:
            return weave_package(architecture, target, library or self.project.library(), parts)
        except LoomError as error:
            if error.where or self.combination not in (self.project.listing.packages or ()):
                raise
            raise LoomError(error.message, self.project.listing.places[self.combination.name], error.remedy) from None

    def weave_files(self) -> dict[str, bytes]:
        """Weaves the bytes of all files, including the map and the lock."""
        return encode_package(self.weave(), self.digests)

    def compare(self, full: bool = False, expect_files: bool = False) -> PackageStatus:
        """Compares the disk with a build; by digests alone if the lock is valid and no input changed.

        Args:
            full: weaves the package whatever its lock says.
            expect_files: reports the files as missing even if the package is not committed.
        """
        check_folder(self.folder)
        reasons = self.find_stale_reasons()
        files = self.weave_files() if full or reasons else None
        locked = None if files else read_lock(self.folder, self.combination).files
        outputs = locked or {path: sha256(data) for path, data in (files or {}).items()}
        status = compare_with_disk(self.folder, self.combination, outputs, self.is_lock_only and not expect_files)
        return replace(status, reasons=reasons, outputs=files)

    @property
    def is_in_place(self) -> bool:
        """Whether it is in the output folder of the project."""
        return self.folder == Path(os.path.abspath(self.project.generated)) / self.combination.name

    @property
    def is_owned(self) -> bool:
        """Whether people own the package, so that builds leave it alone."""
        has_lock = kind_of(self.folder / LOCK) == "file"
        return self.is_in_place and has_lock and self.combination in self.project.listing.owned

    @property
    def is_uncommitted(self) -> bool:
        """Whether the package's lock alone is committed, in packages.lock."""
        return self.is_in_place and self.combination in self.project.listing.uncommitted

    @property
    def is_lock_only(self) -> bool:
        """Whether the package is uncommitted, and none of its files exists."""
        if not self.is_uncommitted or kind_of(self.folder / LOCK) or kind_of(self.folder / JOURNAL):
            return False
        try:
            paths = list(read_lock(self.folder, self.combination).outputs)
        except LoomError:
            paths = list_entries(self.folder)
        return not any(kind_of(self.folder / path) for path in paths)

    def build(self, force: bool = False, dry_run: bool = False, allow_lock_only: bool = False) -> PackageStatus | None:
        """Builds the package.

        Args:
            force: overwrites and deletes edited files too.
            dry_run: writes nothing.
            allow_lock_only: writes only the lock of an uncommitted package whose files do not exist.

        Returns:
            The status before; nothing was written if files are blocked and `force` is not given. None for a package
            that people own.
        """
        if self.is_owned:
            return None
        status = self.compare(expect_files=not allow_lock_only)
        if status.is_lock_only:
            status = replace(status, files=[file for file in status.files if file.path == LOCK])
        if dry_run or not (status.differs or self.is_uncommitted):
            return status
        files = status.outputs or self.weave_files() if status.differs else {}
        if status.differs and not status.is_lock_only:
            status = write_package(self.folder, self.combination, files, force)
        if self.is_uncommitted and (force or not status.blocked):
            text = files[LOCK].decode() if files else read_lock(self.folder, self.combination).text
            write_lock(self.project, self.combination.name, text)
        return status


def create_builders(
    project: Project, out: Path | None = None, combinations: Collection[Combination] | None = None
) -> list[PackageBuilder]:
    """Creates the builders of some packages, by default of all listed ones, in the project's folder or in another."""
    digests, packages = InputDigests(project.roots), project.packages() if combinations is None else combinations
    return [PackageBuilder(project, combination, digests, out or project.generated) for combination in packages]


def create_builder(project: Project, combination: Combination, out: Path | None = None) -> PackageBuilder:
    """Creates the builder of one package."""
    return create_builders(project, out, [combination])[0]


def map_packages(
    job: Callable, project: Project, *options: Any, full: bool = False, out: Path | None = None, report: Any = None
) -> Iterator[tuple[str, Any]]:
    """Runs a job on every listed package; those that need weaving run in parallel.

    Args:
        job: is called with a `PackageBuilder` and the options.
        full: whether all need weaving.
        out: the folder of the packages; the project's by default.
        report: is called with (number, count, name) of each package that was woven.

    Yields:
        The name of each package, and the result of the job or the LoomError that it raised.
    """
    builders = create_builders(project, out)
    heavy = [full or bool(builder.find_stale_reasons()) for builder in builders]
    results = run_parallel(job, [(builder, *options) for builder in builders], heavy)
    for number, (builder, is_slow, result) in enumerate(zip(builders, heavy, results, strict=True), 1):
        if is_slow and report:
            report(number, len(builders), builder.combination.name)
        yield builder.combination.name, result
