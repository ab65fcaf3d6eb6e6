"""Finds what gen works on: the built-in library, the user's own, and the folder of the packages."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from generator import __version__
from generator.disk.lock import LOCK, Combination, read_lock
from generator.disk.look import check_inside, read_text, show
from generator.errors import LoomError, nearest
from generator.recipe.toml import parse_toml

if TYPE_CHECKING:
    from generator.recipe.library import Library

SETTINGS = "gen.toml"
PACKAGES = "packages.toml"
DEFAULTS = {"generated": "generated", "requires": ""}
_BOUND = re.compile(r"\s*(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)\s*", re.ASCII)


class Listed(NamedTuple):
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
    settings: dict[str, str] = field(default_factory=lambda: dict(DEFAULTS))

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
        settings = read_settings(root / SETTINGS, show(root / SETTINGS))
        _check_version(settings["requires"], show(root / SETTINGS))
        return cls(roots, root, _output_folder(root, settings["generated"]), settings)

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

    def uncommitted(self) -> list[Combination]:
        """The packages of which the lock alone is committed, and whoever wants to see the rest builds it."""
        return [] if self._list is None else self._list.uncommitted

    @cached_property
    def _list(self) -> Listed | None:
        return read_listed(self.generated / PACKAGES, show(self.generated / PACKAGES))

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


def read_settings(source: Path | str, shown: str) -> dict[str, str]:
    """The settings of gen.toml, with the defaults of those that are left out.

    Args:
        source: the file, or its text.
    """
    settings = DEFAULTS | (_read(source, shown, set(DEFAULTS)) or {})
    name, requires = settings["generated"], settings["requires"]
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise LoomError("generated is not the name of a folder", shown, 'Write generated = "generated".')
    if not isinstance(requires, str) or not all(map(_BOUND.fullmatch, filter(None, requires.split(",")))):
        raise LoomError("requires is not a range of versions", shown, f'Write requires = ">={__version__}".')
    return settings


def _check_version(requires: str, shown: str) -> None:
    """Refuses to work on a project that is for another gen."""
    tests = {">=": ge, "<=": le, "==": eq, "!=": ne, "<": lt, ">": gt}
    for match in map(_BOUND.fullmatch, filter(None, requires.split(","))):
        assert match is not None
        mine, asked = _numbers(__version__), _numbers(match[2])
        width = max(len(mine), len(asked))
        if not tests[match[1]](mine + [0] * (width - len(mine)), asked + [0] * (width - len(asked))):
            remedy = "Install a gen of these versions for this project, or change the line."
            raise LoomError(f"requires gen {requires}, and this is gen {__version__}", shown, remedy)


def _numbers(version: str) -> list[int]:
    """The release of a version: 1.2.0 of 1.2.0.dev3."""
    return [int(number) for number in re.match(r"[\d.]*", version)[0].strip(".").split(".") if number]  # type: ignore[index]


def read_listed(source: Path | str, shown: str) -> Listed | None:
    """What a packages.toml says, None where there is no such file.

    Args:
        source: the file, or its text.
    """
    table = _read(source, shown, {"package", "own"})
    if table is None:
        return None
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
    uncommitted: list[Combination] = []
    for number, entry in enumerate(entries, 1):
        where = f"{shown} ([[package]] number {number})"
        _check_keys(entry, {"architecture", "target", "parts", "by_hand", "committed"}, where)
        words = entry.get("architecture"), entry.get("target")
        if not all(isinstance(word, str) and word.isidentifier() for word in words):
            remedy = 'Write architecture = "NAME" and target = "NAME".'
            raise LoomError("does not name its architecture and target", where, remedy)
        parts = entry.get("parts", [])
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise LoomError("parts is not a list of names", where, 'Write parts = ["NAME"]; gen list shows them.')
        combination = Combination(*words, tuple(sorted({*parts})))
        if combination.name in [other.name for other in kept]:
            raise LoomError(f"{combination.name} is listed twice", where, "Remove one of the two.")
        kept.append(combination)
        for key, usual in (("by_hand", False), ("committed", True)):
            if not isinstance(entry.get(key, usual), bool):
                remedy = f"Write {key} = {str(not usual).lower()}, or leave it out."
                raise LoomError(f"{key} is neither true nor false", where, remedy)
        by_hand += kept[-1:] if entry.get("by_hand") else []
        uncommitted += kept[-1:] if not entry.get("committed", True) else []
        if kept[-1] in by_hand and kept[-1] in uncommitted:
            remedy = "Leave committed out: what people edit, no build makes again."
            raise LoomError("by_hand and committed = false exclude each other", where, remedy)
    return Listed(kept, own, by_hand, uncommitted)


def _read(source: Path | str, shown: str, known: set[str]) -> dict | None:
    """The tables of a TOML file, or of its text, with no other keys than those known; None where no file is there."""
    if isinstance(source, Path) and not os.path.lexists(source):
        return None
    if isinstance(source, Path) and source.is_symlink() and not source.exists():
        remedy = "Put the file there, or remove the link."
        raise LoomError(f"is a symbolic link to {os.readlink(source)}, which is not there", shown, remedy)
    try:
        table = parse_toml(read_text(Path(os.path.realpath(source))) if isinstance(source, Path) else source, shown)
    except ValueError as error:  # a number of thousands of digits
        raise LoomError(f"not valid TOML: {error}", shown, "Write a shorter number.") from None
    _check_keys(table, known, shown)
    return table


def _check_keys(table: dict, known: set[str], shown: str) -> None:
    for key in table:
        if key not in known:
            raise LoomError(f"unknown key {key!r}", shown, nearest(key, known))
