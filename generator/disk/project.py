"""Finds a project: the built-in library, the user's library, and the folder of the packages."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from generator import __version__
from generator.disk.files import check_relative_path, display_path, read_plain_file
from generator.disk.lock import LOCK, Combination, read_lock
from generator.errors import LoomError
from generator.recipe.schema import PackageList, Settings
from generator.recipe.toml import Toml

if TYPE_CHECKING:
    from generator.recipe.library import Library

SETTINGS = "gen.toml"
PACKAGES = "packages.toml"


@dataclass
class PackageListing:
    """The content of packages.toml.

    Attributes:
        packages: every listed package; None if there is no such file.
        unmanaged: paths below the output folder that are declared not to be gen's (`own`).
        owned: packages that gen made and that people edit now, so that no build writes them (`by_hand`).
        uncommitted: packages whose lock alone is committed (`committed = false`).
        places: name of a package -> file and line of its entry; path of `unmanaged` -> those of the path.
    """

    packages: list[Combination] | None = None
    unmanaged: list[str] = field(default_factory=list)
    owned: list[Combination] = field(default_factory=list)
    uncommitted: list[Combination] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Project:
    """The folders and settings that a command works with.

    Attributes:
        roots: folders with fragments/, templates/ and targets/: the built-in one, then the user's if it is another.
        root: the user's folder, with gen.toml and, unless gen.toml names another folder, generated/.
        generated: the output folder of the packages.
        settings: the content of gen.toml.
    """

    roots: tuple[Path, ...]
    root: Path
    generated: Path
    settings: Settings = field(default_factory=Settings)

    @classmethod
    def find(cls, start: Path | None = None, builtin: Path | None = None) -> Project:
        """Finds the project that a folder is in.

        Args:
            start: where the search begins, upward; the working directory by default.
            builtin: the built-in root, for tests.
        """
        start = Path(start or Path.cwd()).resolve()
        builtin = builtin or builtin_root()
        root = next((folder for folder in (start, *start.parents) if os.path.lexists(folder / SETTINGS)), start)
        roots = (builtin,) if root == builtin else (builtin, root)
        settings = parse_settings(_read_optional(root / SETTINGS) or "", display_path(root / SETTINGS))
        return cls(roots, root, _check_output_folder(root, settings.generated), settings)

    def display_path(self, path: Path) -> str:
        """Returns a path for messages and commands."""
        return display_path(path)

    @cached_property
    def listing(self) -> PackageListing:
        """The content of packages.toml."""
        text = _read_optional(self.generated / PACKAGES)
        return PackageListing() if text is None else parse_package_list(text, display_path(self.generated / PACKAGES))

    def packages(self) -> list[Combination]:
        """Returns the packages in packages.toml; without that file, those that have been built."""
        return self._built if self.listing.packages is None else self.listing.packages

    def find_parts(self, name: str) -> tuple[str, ...]:
        """Returns the parts of a package that are listed or, if it is not listed, locked; empty if neither is known."""
        for combination in self.listing.packages or ():
            if combination.name == name:
                return combination.parts
        try:
            return read_lock(self.generated / name).parts
        except LoomError:
            return ()

    def locked_folders(self) -> list[Path]:
        """Returns the sorted folders in the output folder that have a lock."""
        if not self.generated.is_dir():
            return []
        return sorted(folder for folder in self.generated.iterdir() if os.path.lexists(folder / LOCK))

    @cached_property
    def _built(self) -> list[Combination]:
        locks = {folder.name: read_lock(folder) for folder in self.locked_folders()}
        # a renamed or copied folder is not the output of a build
        return [lock.combination for name, lock in locks.items() if lock.combination.name == name]

    def library(self) -> Library:
        """Returns the built-in library joined with the user's; it is read once."""
        return _library(self.roots)

    def forget_library(self) -> None:
        """Clears the cache of the library after a change to its files."""
        _library.cache_clear()


def builtin_root() -> Path:
    """Returns the folder of the built-in library: inside an installed gen, else the repository of this module."""
    package = Path(__file__).resolve().parents[1]
    packed = package / "_library"
    return packed if packed.is_dir() else package.parent


@lru_cache(maxsize=8)
def _library(roots: tuple[Path, ...]) -> Library:
    from generator.recipe.library import Library  # imported late: it imports all of weaving

    return Library.read(roots)


def _check_output_folder(root: Path, name: str) -> Path:
    """Returns the output folder, which may be anywhere except behind a link inside the project."""
    folder = root / name
    label = display_path(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise LoomError("is a file where gen needs a folder", label, f"Move it, or name another in {SETTINGS}.")
    is_inside = Path(os.path.abspath(folder)).is_relative_to(root)
    if is_inside and not Path(os.path.realpath(folder)).is_relative_to(root):
        remedy = f'If it is meant, write generated = "{os.path.realpath(folder)}" in {SETTINGS}.'
        raise LoomError("is a symbolic link that leads out of the project", label, remedy)
    return folder


def parse_settings(text: str, label: str) -> Settings:
    """Parses a gen.toml; refuses one that requires another version of gen."""
    file = Toml(label, text, Settings)
    settings = file.data
    if not settings.generated:
        raise LoomError("generated is empty", str(file.origin("generated")), 'Write generated = "generated".')
    if settings.requires:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet  # imported late: few projects need it

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


def parse_package_list(text: str, label: str) -> PackageListing:
    """Parses a packages.toml."""
    file = Toml(label, text, PackageList)
    listing = PackageListing(unmanaged=list(file.data.own))
    for number, path in enumerate(file.data.own):
        listing.places[path] = str(file.origin("own", number))
        try:
            check_relative_path(path)
        except ValueError as error:
            remedy = "Write it from this folder, with forward slashes."
            raise LoomError(f"own: {error}", listing.places[path], remedy) from None
    packages: dict[str, Combination] = {}
    for number, entry in enumerate(file.data.package):
        combination = Combination(entry.architecture, entry.target, tuple(sorted({*entry.parts})))
        where = str(file.origin("package", number))
        if combination.name in packages:
            raise LoomError(f"{combination.name} is listed twice", where, "Remove one of the two.")
        if entry.by_hand and not entry.committed:
            remedy = "Leave committed out: no build can make what people edit."
            raise LoomError("by_hand and committed = false exclude each other", where, remedy)
        packages[combination.name], listing.places[combination.name] = combination, where
        listing.owned += [combination] * entry.by_hand
        listing.uncommitted += [combination] * (not entry.committed)
    listing.packages = list(packages.values())
    return listing


def _read_optional(path: Path) -> str | None:
    """Reads a file; returns None if it does not exist."""
    if not os.path.lexists(path):
        return None
    if path.is_symlink() and not path.exists():
        remedy = "Put the file there, or remove the link."
        raise LoomError(f"is a symbolic link to {os.readlink(path)}, which is not there", display_path(path), remedy)
    return read_plain_file(Path(os.path.realpath(path)))
