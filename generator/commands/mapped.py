"""A package on disk together with its map: which source line each line came from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from generator.commands.lock import Lock, read_lock, sha256
from generator.commands.project import MAP, Project
from generator.errors import LoomError, nearest
from generator.traced import Origin

Segments = list[tuple[int, Origin]]


@dataclass(frozen=True)
class MappedPackage:
    """A built package.

    Attributes:
        folder: where it is.
        shown: how messages name it.
        lock: its lock.
    """

    folder: Path
    shown: str
    lock: Lock

    @classmethod
    def read(cls, folder: Path, shown: str) -> MappedPackage:
        """The package in a folder.

        Raises:
            LoomError: there is no lock in it, or it cannot be read.
        """
        return cls(folder, shown, read_lock(folder, shown))

    @property
    def name(self) -> str:
        return self.lock.combination.name

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        """For each woven Python file, for each line its segments.

        Raises:
            LoomError: gen.map is missing or is not what gen writes.
        """
        from generator.sourcemap import load

        where, remedy = f"{self.shown}/{MAP}", f"Build the package again: {self.lock.combination.command}"
        try:
            return load((self.folder / MAP).read_bytes().decode("utf-8"))
        except OSError as error:
            raise LoomError(f"cannot be read: {error.strerror}", where, remedy) from None
        except (LoomError, UnicodeDecodeError):
            raise LoomError("is not a map of gen", where, remedy) from None

    def lines(self, path: str) -> list[str]:
        """The lines of a file of the package.

        Raises:
            LoomError: it is gone, or is no UTF-8 text.
        """
        try:
            return (self.folder / path).read_bytes().decode("utf-8").splitlines()
        except FileNotFoundError:
            remedy = f"Build the package again: {self.lock.combination.command}"
            raise LoomError("is gone", f"{self.shown}/{path}", remedy) from None
        except UnicodeDecodeError:
            remedy = f"Build the package again: {self.lock.combination.command} --force"
            raise LoomError("is not UTF-8 text", f"{self.shown}/{path}", remedy) from None

    def origins_of(self, path: str) -> list[Segments]:
        """The segments of each line of a file as it is on disk; none for a file that is no woven Python.

        Lines that someone added since the build have none.
        """
        segments = self.origins.get(path, [])
        return segments + [[]] * (len(self.lines(path)) - len(segments)) if segments else []

    def edited(self, path: str) -> bool:
        """Whether a file differs from what was built, so that its lines may not be those of the map."""
        return sha256((self.folder / path).read_bytes()) != self.lock.outputs.get(path)


def find_package(project: Project, word: str) -> MappedPackage:
    """A built package by its name or its folder.

    Raises:
        LoomError: there is none.
    """
    for folder in (Path(word), project.generated / word):
        if (folder / "gen.lock").exists():
            return MappedPackage.read(folder, project.show(folder))
    names = [folder.name for folder in project.locked_folders()]
    raise LoomError(f"{word} is neither a package nor the folder of one", remedy=nearest(word, names))


def built_packages(project: Project) -> list[MappedPackage]:
    """The packages that are kept and have been built, in the order of the list.

    Raises:
        LoomError: a list, lock or map cannot be read, or nothing has been built.
    """
    folders = [project.generated / combination.name for combination in project.packages()]
    result = [MappedPackage.read(folder, project.show(folder)) for folder in folders if folder.is_dir()]
    if not result:
        raise LoomError(
            "no package has been built", project.show(project.generated), "Build one: gen build ARCH --target=T"
        )
    return result
