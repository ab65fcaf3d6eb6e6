"""A package on disk together with its map: which source line each line came from."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from generator.code.traced import Origin
from generator.disk.lock import LOCK, MAP, Combination, Lock, read_lock
from generator.disk.look import kind_of, read_text, sha256, show
from generator.disk.project import Project
from generator.errors import LoomError, nearest

Segments = list[tuple[int, Origin]]


@dataclass(frozen=True)
class MappedPackage:
    """A built package: its folder and its lock."""

    folder: Path
    lock: Lock

    @classmethod
    def read(cls, folder: Path) -> MappedPackage:
        """The package in a folder."""
        return cls(folder, read_lock(folder))

    @property
    def shown(self) -> str:
        """How messages name the folder."""
        return show(self.folder)

    @property
    def name(self) -> str:
        return self.lock.combination.name

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        """For each woven Python file, for each line its segments."""
        from generator.code.sourcemap import load  # late: most commands need no map

        remedy = f"Build the package again: {self.lock.combination.command}"
        text = read_text(self.folder / MAP, remedy)
        try:
            if sha256(text.encode()) == self.lock.outputs.get(MAP):
                return load(text)
        except (LoomError, RecursionError):
            pass  # with a hash that a hand put in
        raise LoomError("is not the map that was built", show(self.folder / MAP), remedy)

    def lines(self, path: str) -> list[str]:
        """The lines of a file of the package."""
        remedy = f"Build the package again: {self.lock.combination.command} --force"
        return read_text(self.folder / path, remedy).splitlines()

    def origins_of(self, path: str) -> list[Segments]:
        """The segments of each line of a file as it is on disk; none for a file that is no woven Python.

        Lines that someone added since the build have none.
        """
        segments = self.origins.get(path, [])
        return segments + [[]] * (len(self.lines(path)) - len(segments)) if segments else []

    def edited(self, path: str) -> bool:
        """Whether a file differs from what was built, so that its lines may not be those of the map."""
        return sha256((self.folder / path).read_bytes()) != self.lock.outputs.get(path)

    @property
    def is_there(self) -> bool:
        """Whether any of its files is there besides the lock."""
        return any(kind_of(self.folder / path) for path in self.lock.outputs)

    def check_there(self) -> MappedPackage:
        """The package, of which there must be more than the lock."""
        if self.is_there:
            return self
        raise LoomError("is not there: its lock alone is", self.shown, f"Build it: {self.lock.combination.command}")


@dataclass(frozen=True)
class WovenPackage(MappedPackage):
    """A package in memory: path -> bytes, the map among them."""

    files: dict[str, bytes]

    @classmethod
    def of(cls, combination: Combination, files: dict[str, bytes]) -> WovenPackage:
        """The package of these files."""
        return cls(Path(combination.name), Lock(*combination, {}, {}, {}, dict.fromkeys(files, "")), files)

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        """As of a package on disk; without a map that can be read its lines have none."""
        from generator.code.sourcemap import load

        with suppress(LoomError, RecursionError, KeyError, UnicodeDecodeError):
            return load(self.files[MAP].decode())
        return {}

    def lines(self, path: str) -> list[str]:
        return self.files[path].decode("utf-8", "replace").splitlines()


def is_locked(project: Project, folder: Path) -> bool:
    """Whether a folder has a lock, or is that of a package that is not committed."""
    places = [project.generated / combination.name for combination in project.uncommitted()]
    return (folder / LOCK).is_file() or os.path.abspath(folder) in map(os.path.abspath, places)


def find_package(project: Project, word: str) -> MappedPackage:
    """A built package by its name or its folder."""
    for folder in (Path(word), project.generated / word):
        if is_locked(project, folder):
            return MappedPackage.read(folder).check_there()
    if (folder := project.generated / word).is_dir() and word in [package.name for package in project.packages()]:
        raise LoomError(f"has no {LOCK}", show(folder), f"Take it back from git: git restore {show(folder / LOCK)}")
    names = [folder.name for folder in project.locked_folders()]
    raise LoomError(f"{word} is neither a package nor the folder of one", remedy=nearest(word, names))


def built_packages(project: Project) -> list[MappedPackage]:
    """The packages that are kept and have been built, in the order of the list."""
    folders = [project.generated / combination.name for combination in project.packages()]
    result = [MappedPackage.read(folder) for folder in folders if folder.is_dir()]
    result = [package for package in result if package.is_there]
    if not result:
        raise LoomError(
            "no package has been built", project.show(project.generated), "Build one: gen build ARCH --target=T"
        )
    return result
