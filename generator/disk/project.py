"""Finds what gen works on: the built-in library, the user's own, and the folder of the packages."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from generator import __version__
from generator.disk.files import check_inside, display_path, read_plain_file
from generator.disk.lock import LOCK, Combination, read_lock
from generator.errors import LoomError
from generator.recipe.schema import PackageList, Settings
from generator.recipe.toml import Toml

if TYPE_CHECKING:
    from generator.recipe.library import Library

SETTINGS = "gen.toml"
PACKAGES = "packages.toml"


class PackageListing(NamedTuple):
    """What packages.toml says; as in `Project`."""

    packages: list[Combination]
    own: list[str]
    by_hand: list[Combination]
    uncommitted: list[Combination]


@dataclass(frozen=True)
class Project:
    """Where things are.

    Attributes:
        roots: the folders that hold fragments/, templates/ and targets/: the built-in one, then the user's, if another.
        root: the user's folder: it holds gen.toml and, unless gen.toml says otherwise, generated/.
        generated: the folder that the packages are built in.
        settings: what gen.toml says.
    """

    roots: tuple[Path, ...]
    root: Path
    generated: Path
    settings: Settings = field(default_factory=Settings)

    @classmethod
    def find(cls, start: Path | None = None, builtin: Path | None = None) -> Project:
        """Finds the project around a folder.

        Args:
            start: where to look from, upward; the working directory by default.
            builtin: the built-in root, for tests.
        """
        start = Path(start or Path.cwd()).resolve()
        builtin = builtin or builtin_root()
        root = next((folder for folder in (start, *start.parents) if os.path.lexists(folder / SETTINGS)), start)
        roots = (builtin,) if root == builtin else (builtin, root)
        text = _text(root / SETTINGS)
        settings = read_settings(text or "", display_path(root / SETTINGS))
        return cls(roots, root, _output_folder(root, settings.generated), settings)

    def display_path(self, path: Path) -> str:
        """A path as messages and commands give it."""
        return display_path(path)

    def packages(self) -> list[Combination]:
        """The packages that are kept: those of packages.toml or, where there is none, those that have been built."""
        listed = self.listed()
        return self._built if listed is None else listed

    def listed(self) -> list[Combination] | None:
        """The packages of packages.toml, None where there is no such file."""
        return None if self._list is None else self._list.packages

    def own(self) -> list[str]:
        """The paths below the output folder that packages.toml names as not gen's."""
        return [] if self._list is None else self._list.own

    def by_hand(self) -> list[Combination]:
        """The packages that people own: gen made them, and builds them no more."""
        return [] if self._list is None else self._list.by_hand

    def uncommitted(self) -> list[Combination]:
        """The packages of which the lock alone is committed, and whoever wants to see the rest builds it."""
        return [] if self._list is None else self._list.uncommitted

    @cached_property
    def _list(self) -> PackageListing | None:
        text = _text(self.generated / PACKAGES)
        return None if text is None else read_listed(text, display_path(self.generated / PACKAGES))

    def parts_of(self, name: str) -> tuple[str, ...]:
        """The parts of a package: those that are listed, or that it was built with; none where that is not known."""
        for combination in self.listed() or ():
            if combination.name == name:
                return combination.parts
        try:
            return read_lock(self.generated / name).parts
        except LoomError:
            return ()

    def locked_folders(self) -> list[Path]:
        """The folders in the output folder that hold a lock, by name."""
        if not self.generated.is_dir():
            return []
        return sorted(folder for folder in self.generated.iterdir() if os.path.lexists(folder / LOCK))

    @cached_property
    def _built(self) -> list[Combination]:
        locks = {folder.name: read_lock(folder) for folder in self.locked_folders()}
        # a renamed or copied folder is nobody's output
        return [lock.combination for name, lock in locks.items() if lock.combination.name == name]

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
    from generator.recipe.library import Library  # late: it imports all of weaving

    return Library.read(roots)


def _output_folder(root: Path, name: str) -> Path:
    """The folder of the packages, which may be anywhere, but not behind a link inside the project."""
    folder = root / name
    shown = display_path(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise LoomError("is a file where gen needs a folder", shown, f"Move it, or name another in {SETTINGS}.")
    inside = Path(os.path.abspath(folder)).is_relative_to(root)
    if inside and not Path(os.path.realpath(folder)).is_relative_to(root):
        remedy = f'If it is meant, write generated = "{os.path.realpath(folder)}" in {SETTINGS}.'
        raise LoomError("is a symbolic link that leads out of the project", shown, remedy)
    return folder


def read_settings(text: str, shown: str) -> Settings:
    """Reads the text of a gen.toml; one that is for another gen is refused."""
    file = Toml(shown, text, Settings)
    settings = file.data
    if not settings.generated:
        raise LoomError("generated is empty", str(file.origin("generated")), 'Write generated = "generated".')
    if settings.requires:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet  # late: few projects ask

        where = str(file.origin("requires"))
        try:
            fits = SpecifierSet(settings.requires).contains(__version__, prereleases=True)
        except InvalidSpecifier:
            remedy = f'Write requires = ">={__version__}".'
            raise LoomError("requires is not a range of versions", where, remedy) from None
        if not fits:
            remedy = "Install a gen of these versions for this project, or change the line."
            raise LoomError(f"requires gen {settings.requires}, and this is gen {__version__}", where, remedy)
    return settings


def read_listed(text: str, shown: str) -> PackageListing:
    """Reads the text of a packages.toml."""
    file = Toml(shown, text, PackageList)
    for number, path in enumerate(file.data.own):
        try:
            check_inside(path)
        except ValueError as error:
            remedy = "Write it from this folder, with forward slashes."
            raise LoomError(f"own: {error}", str(file.origin("own", number)), remedy) from None
    listed = PackageListing([], list(file.data.own), [], [])
    for number, entry in enumerate(file.data.package):
        combination = Combination(entry.architecture, entry.target, tuple(sorted({*entry.parts})))
        where = str(file.origin("package", number))
        if combination.name in [other.name for other in listed.packages]:
            raise LoomError(f"{combination.name} is listed twice", where, "Remove one of the two.")
        if entry.by_hand and not entry.committed:
            remedy = "Leave committed out: what people edit, no build makes again."
            raise LoomError("by_hand and committed = false exclude each other", where, remedy)
        listed.packages.append(combination)
        if entry.by_hand:
            listed.by_hand.append(combination)
        if not entry.committed:
            listed.uncommitted.append(combination)
    return listed


def _text(path: Path) -> str | None:
    """The text of a file, None where there is none."""
    if not os.path.lexists(path):
        return None
    if path.is_symlink() and not path.exists():
        remedy = "Put the file there, or remove the link."
        raise LoomError(f"is a symbolic link to {os.readlink(path)}, which is not there", display_path(path), remedy)
    return read_plain_file(Path(os.path.realpath(path)))
