"""Finds what gen works on: the built-in library, the user's own, and the folder of the packages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from generator.disk.lock import LOCK, Combination, read_lock
from generator.disk.look import check_inside, read_text, show
from generator.errors import LoomError, nearest
from generator.recipe.toml import parse_toml

if TYPE_CHECKING:
    from generator.recipe.library import Library

SETTINGS = "gen.toml"
PACKAGES = "packages.toml"


class _Listed(NamedTuple):
    """What packages.toml says."""

    packages: list[Combination]
    own: list[str]
    by_hand: list[Combination]


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
        """
        start = Path(start or Path.cwd()).resolve()
        builtin = builtin or builtin_root()
        root = next((folder for folder in (start, *start.parents) if os.path.lexists(folder / SETTINGS)), start)
        roots = (builtin,) if root == builtin else (builtin, root)
        name = _read(root / SETTINGS, {"generated"}).get("generated", "generated")
        if not isinstance(name, str) or not name.isprintable() or not name:
            raise LoomError(
                "generated is not the name of a folder", show(root / SETTINGS), 'Write generated = "generated".'
            )
        return cls(roots, root, _output_folder(root, name))

    def show(self, path: Path) -> str:
        """A path as messages and commands give it."""
        return show(path)

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

    @cached_property
    def _list(self) -> _Listed | None:
        path = self.generated / PACKAGES
        if not os.path.lexists(path):
            return None
        shown, table = show(path), _read(path, {"package", "own"})
        entries, own = table.get("package", []), table.get("own", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise LoomError("package is not a list of tables", shown, "Write [[package]] above each entry.")
        if not isinstance(own, list) or not all(isinstance(entry, str) for entry in own):
            raise LoomError("own is not a list of paths", shown, 'Write own = ["PACKAGE/FILE"].')
        for entry in own:
            try:
                check_inside(entry)
            except ValueError as error:
                raise LoomError(f"own: {error}", shown, "Write it from this folder, with forward slashes.") from None
        kept: list[Combination] = []
        by_hand: list[Combination] = []
        for number, entry in enumerate(entries, 1):
            where = f"{shown} ([[package]] number {number})"
            _check_keys(entry, {"architecture", "target", "by_hand"}, where)
            words = entry.get("architecture"), entry.get("target")
            if not all(isinstance(word, str) and word.isidentifier() for word in words):
                remedy = 'Write architecture = "NAME" and target = "NAME".'
                raise LoomError("does not name its architecture and target", where, remedy)
            if Combination(*words).name in [combination.name for combination in kept]:
                raise LoomError(f"{Combination(*words).name} is listed twice", where, "Remove one of the two.")
            kept.append(Combination(*words))
            if not isinstance(entry.get("by_hand", False), bool):
                raise LoomError("by_hand is neither true nor false", where, "Write by_hand = true, or leave it out.")
            by_hand += kept[-1:] if entry.get("by_hand") else []
        return _Listed(kept, own, by_hand)

    def locked_folders(self) -> list[Path]:
        """The folders in the output folder that hold a lock, by name."""
        if not self.generated.is_dir():
            return []
        return sorted(folder for folder in self.generated.iterdir() if os.path.lexists(folder / LOCK))

    @cached_property
    def _built(self) -> list[Combination]:
        locks = {folder.name: read_lock(folder, sealed=False) for folder in self.locked_folders()}
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
    from generator.recipe.library import Library  # late: it imports libcst

    return Library.read(roots)


def _output_folder(root: Path, name: str) -> Path:
    """The folder of the packages, which may be anywhere, but not behind a link inside the project."""
    folder = root / name
    shown = show(folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise LoomError("is a file where gen needs a folder", shown, f"Move it, or name another in {SETTINGS}.")
    inside = Path(os.path.abspath(folder)).is_relative_to(root)
    if inside and not Path(os.path.realpath(folder)).is_relative_to(root):
        remedy = f'If it is meant, write generated = "{os.path.realpath(folder)}" in {SETTINGS}.'
        raise LoomError("is a symbolic link that leads out of the project", shown, remedy)
    return folder


def _read(path: Path, known: set[str]) -> dict:
    """The tables of a TOML file that holds no other keys than those known; none where there is no file."""
    if not os.path.lexists(path):
        return {}
    try:
        table = parse_toml(read_text(Path(os.path.realpath(path))), show(path))
    except ValueError as error:  # a number of thousands of digits
        raise LoomError(f"not valid TOML: {error}", show(path), "Write a shorter number.") from None
    _check_keys(table, known, show(path))
    return table


def _check_keys(table: dict, known: set[str], shown: str) -> None:
    for key in table:
        if key not in known:
            raise LoomError(f"unknown key {key!r}", shown, nearest(key, known))
