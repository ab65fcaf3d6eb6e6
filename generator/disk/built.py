"""Reads a built package: its lock, its line map, and its text as of the last build.

That text is the base of a three-way merge. `gen.base`, beside the lock, has it for a package that people own. For other
packages it is found by the digests in the lock: in unedited files, in a package woven now, or in git's history.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from generator.code.traced import Origin
from generator.disk.files import display_path, kind_of, read_if_file, read_plain_file, sha256
from generator.disk.git import find_old_version
from generator.disk.lock import LOCK, MAP, Combination, Lock, read_lock
from generator.disk.project import Project
from generator.errors import LoomError, nearest

BASE = "gen.base"
ABOUT = "What gen wove when this package was last built or updated: gen update merges with it."
Segments = list[tuple[int, Origin]]


@dataclass(frozen=True)
class MappedPackage:
    """A package on disk."""

    folder: Path
    lock: Lock

    @classmethod
    def read(cls, folder: Path) -> MappedPackage:
        """Reads the lock in a folder; the map is read when it is needed."""
        return cls(folder, read_lock(folder))

    @property
    def label(self) -> str:
        """The folder as messages print it."""
        return display_path(self.folder)

    @property
    def name(self) -> str:
        return self.lock.combination.name

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        """The segments of each line of each woven Python file, from the line map."""
        from generator.code.sourcemap import parse_map  # imported late: most commands need no map

        remedy = f"Build the package again: {self.lock.combination.command}"
        text = read_plain_file(self.folder / MAP, remedy)
        if sha256(text.encode()) == self.lock.outputs.get(MAP):
            with suppress(LoomError, RecursionError):  # the digest may be forged
                return parse_map(text)
        raise LoomError("is not the map that was built", display_path(self.folder / MAP), remedy)

    def read_lines(self, path: str) -> list[str]:
        """Reads the lines of a file of the package."""
        remedy = f"Build the package again: {self.lock.combination.command} --force"
        return read_plain_file(self.folder / path, remedy).splitlines()

    def line_origins(self, path: str) -> list[Segments]:
        """Returns the segments of each line of a file on disk; an empty list if it is not woven Python.

        Lines appended since the build have no segments.
        """
        segments = self.origins.get(path, [])
        return segments + [[]] * (len(self.read_lines(path)) - len(segments)) if segments else []

    def is_edited(self, path: str) -> bool:
        """Returns whether a file differs from the build, so that the map may not match its lines."""
        return sha256((self.folder / path).read_bytes()) != self.lock.outputs.get(path)

    @property
    def has_files(self) -> bool:
        """Whether any of its files exists besides the lock."""
        return any(kind_of(self.folder / path) for path in self.lock.outputs)

    def require_files(self) -> MappedPackage:
        """Returns the package; refuses one of which only the lock exists."""
        if self.has_files:
            return self
        raise LoomError("does not exist: only its lock does", self.label, f"Build it: {self.lock.combination.command}")


@dataclass(frozen=True)
class WovenPackage(MappedPackage):
    """A package in memory: path -> bytes, including the map."""

    files: dict[str, bytes]

    @classmethod
    def from_files(cls, combination: Combination, files: dict[str, bytes]) -> WovenPackage:
        """Creates a package of these files, with a lock that has no digests."""
        architecture, target, parts = combination
        lock = Lock(architecture, target, {}, {}, {}, dict.fromkeys(files, ""), parts)
        return cls(Path(combination.name), lock, files)

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        """As for a package on disk; empty without a readable map."""
        from generator.code.sourcemap import parse_map

        with suppress(LoomError, RecursionError, KeyError, UnicodeDecodeError):
            return parse_map(self.files[MAP].decode())
        return {}

    def read_lines(self, path: str) -> list[str]:
        return self.files[path].decode("utf-8", "replace").splitlines()


def has_lock(project: Project, folder: Path) -> bool:
    """Returns whether a folder has a lock, or packages.lock has one for it."""
    uncommitted = [project.generated / combination.name for combination in project.listing.uncommitted]
    return (folder / LOCK).is_file() or os.path.abspath(folder) in map(os.path.abspath, uncommitted)


def find_package(project: Project, word: str) -> MappedPackage:
    """Finds a built package by its name or its folder."""
    for folder in (Path(word), project.generated / word):
        if has_lock(project, folder):
            return MappedPackage.read(folder).require_files()
    if (folder := project.generated / word).is_dir() and word in [package.name for package in project.packages()]:
        remedy = f"Take it back from git: git restore {display_path(folder / LOCK)}"
        raise LoomError(f"has no {LOCK}", display_path(folder), remedy)
    names = [folder.name for folder in project.locked_folders()]
    raise LoomError(f"{word} is neither a package nor the folder of one", remedy=nearest(word, names))


def find_built_packages(project: Project) -> list[MappedPackage]:
    """Finds the packages that have been built: the listed ones in the order of the list, then the others by name."""
    listed = [project.generated / combination.name for combination in project.packages()]
    folders = [*listed, *sorted(folder for folder in project.locked_folders() if folder not in listed)]
    packages = [package for folder in folders if folder.is_dir() and (package := MappedPackage.read(folder)).has_files]
    if not packages:
        remedy = "Build one: gen build ARCH --target=T"
        raise LoomError("no package has been built", display_path(project.generated), remedy)
    return packages


def format_base(files: dict[str, bytes]) -> bytes:
    """Returns the content of `gen.base` for the files of a build."""
    texts = {path: data.decode() for path, data in sorted(files.items()) if path not in (LOCK, MAP)}
    return (json.dumps({"about": ABOUT, "files": texts}, indent=1, ensure_ascii=False) + "\n").encode()


def read_base(folder: Path) -> dict[str, str]:
    """Reads `gen.base` of a package; returns an empty dict without a valid one."""
    if kind_of(folder / BASE) != "file":
        return {}
    try:
        files = json.loads(read_plain_file(folder / BASE))["files"]
        return {path: text for path, text in files.items() if isinstance(text, str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def find_base_texts(folder: Path, lock: Lock, weave: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Finds the text of each file of a package, except the map, as of the last build.

    Args:
        weave: weaves the package now.
    """
    digests = {path: digest for path, digest in lock.outputs.items() if path != MAP}
    texts: dict[str, str] = {}

    def add_matching(candidates: dict[str, str]) -> None:
        texts.update((path, text) for path, text in candidates.items() if sha256(text.encode()) == digests.get(path))

    add_matching(read_base(folder))
    add_matching({path: read_if_file(folder / path).decode(errors="replace") for path in digests.keys() - texts.keys()})
    if texts.keys() != digests.keys():
        with suppress(LoomError):  # the history may have what cannot be woven now
            add_matching(weave())
    for path in sorted(digests.keys() - texts.keys()):
        text = find_old_version(folder, path, digests[path])
        if text is None:
            remedy = f"Take {BASE} back as gen wrote it, fetch the whole history of git, or merge by hand: "
            remedy += "gen build --out DIR makes what is woven now."
            message = f"the text of the last build is neither in {BASE} nor in git's history"
            raise LoomError(message, display_path(folder / path), remedy)
        texts[path] = text
    return texts
