"""Finds what gen works on: the built-in library, the user's own, and the folder of the packages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.library import Library

SETTINGS = "gen.toml"
PACKAGES = "packages.toml"
LOCK = "gen.lock"
MAP = "gen.map"


class Combination(NamedTuple):
    """An architecture on a target: what one package is made from."""

    architecture: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.architecture}_{self.target}"

    @property
    def command(self) -> str:
        """The command that builds it."""
        return f"gen build {self.architecture} --target={self.target}"


@dataclass(frozen=True)
class Project:
    """Where things are.

    Attributes:
        roots: the folders that hold fragments/, templates/ and targets/: the built-in one, then the user's, if another.
        root: the user's folder: it holds gen.toml and, unless gen.toml says otherwise, generated/.
        generated: the folder that the packages are built in.
    """

    roots: tuple[Path, ...]
    root: Path
    generated: Path

    @classmethod
    def find(cls, start: Path | None = None, builtin: Path | None = None) -> Project:
        """The project around a folder.

        Args:
            start: where to look from, upward; the working directory by default.
            builtin: the built-in root, for tests.

        Raises:
            LoomError: gen.toml cannot be read or says something unknown.
        """
        start = Path(start or Path.cwd()).resolve()
        builtin = builtin or builtin_root()
        root = next((folder for folder in (start, *start.parents) if (folder / SETTINGS).is_file()), start)
        roots = (builtin,) if root == builtin else (builtin, root)
        return cls(roots, root, root / _generated(root / SETTINGS))

    def show(self, path: Path) -> str:
        """A path as messages and commands give it: from the working directory where it lies in the project."""
        path = Path(os.path.abspath(path))
        return os.path.relpath(path) if path.is_relative_to(self.root) else str(path)

    def packages(self) -> list[Combination]:
        """The packages that are kept: those of packages.toml or, where there is none, those that have been built.

        Raises:
            LoomError: packages.toml or, where it is needed, a lock cannot be read or says something unknown.
        """
        listed = self.listed()
        return self._built() if listed is None else listed

    def listed(self) -> list[Combination] | None:
        """The packages of packages.toml, None where there is no such file.

        Raises:
            LoomError: the file cannot be read or says something unknown.
        """
        path = self.generated / PACKAGES
        if not path.exists():
            return None
        from generator.commands.tomlfile import check_keys, read_toml

        shown = self.show(path)
        table = read_toml(path, shown)
        check_keys(table, ["package"], shown)
        entries = table.get("package", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise LoomError("package is not a list of tables", shown, "Write [[package]] above each entry.")
        result: list[Combination] = []
        for number, entry in enumerate(entries, 1):
            check_keys(entry, ["architecture", "target"], f"{shown} ([[package]] number {number})")
            words = entry.get("architecture"), entry.get("target")
            if not all(isinstance(word, str) and word.isidentifier() for word in words):
                remedy = 'Write architecture = "NAME" and target = "NAME".'
                raise LoomError(f"[[package]] number {number} does not name its architecture and target", shown, remedy)
            if Combination(*words) in result:
                raise LoomError(f"{Combination(*words).name} is listed twice", shown, "Remove one of the two.")
            result.append(Combination(*words))
        return result

    def locked_folders(self) -> list[Path]:
        """The folders in the output folder that hold a lock, by name."""
        if not self.generated.is_dir():
            return []
        return sorted(folder for folder in self.generated.iterdir() if os.path.lexists(folder / LOCK))

    def _built(self) -> list[Combination]:
        from generator.commands.lock import read_lock

        result = []
        for folder in self.locked_folders():
            lock = read_lock(folder, self.show(folder))
            if lock.combination.name == folder.name:  # a renamed or copied folder is nobody's output
                result.append(lock.combination)
        return result

    def library(self) -> Library:
        """The built-in library and the user's as one, read once."""
        return _library(self.roots)

    def forget_library(self) -> None:
        """Has the library read anew, after a change to it."""
        _library.cache_clear()


def builtin_root() -> Path:
    """The folder of the built-in library: inside an installed gen, else the repository that this module stands in."""
    here = Path(__file__).resolve().parents[1]
    packed = here / "_library"
    return packed if packed.is_dir() else here.parent


@lru_cache(maxsize=8)
def _library(roots: tuple[Path, ...]) -> Library:
    from generator.library import Library

    return Library.read(roots)


def _generated(settings: Path) -> str:
    """The output folder that gen.toml names."""
    if not settings.is_file():
        return "generated"
    from generator.commands.tomlfile import check_keys, read_toml

    shown = os.path.relpath(settings)
    table = read_toml(settings, shown)
    check_keys(table, ["generated"], shown)
    folder = table.get("generated", "generated")
    if not isinstance(folder, str) or not folder:
        raise LoomError("generated is not the name of a folder", shown, 'Write generated = "generated".')
    return folder
