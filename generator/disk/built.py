"""A package on disk: its lock, the map from its lines to sources, and what was woven when it was last built.

What was woven is the base of a three-way merge. A package that people own keeps it in `gen.base`, beside the lock. For
others it is found by the hashes of the lock: in files that nobody edited, in what is woven now, in git's history.
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
from generator.disk.files import display_path, kind_of, read_plain_file, sha256
from generator.disk.git import older_file
from generator.disk.lock import LOCK, MAP, Combination, Lock, read_lock
from generator.disk.project import Project
from generator.errors import LoomError, nearest

BASE = "gen.base"
ABOUT = "What gen wove when this package was last built or updated: gen update merges with it."
Segments = list[tuple[int, Origin]]


@dataclass(frozen=True)
class MappedPackage:
    """A built package: its folder and its lock."""

    folder: Path
    lock: Lock

    @classmethod
    def read(cls, folder: Path) -> MappedPackage:
        return cls(folder, read_lock(folder))

    @property
    def shown(self) -> str:
        """How messages name the folder."""
        return display_path(self.folder)

    @property
    def name(self) -> str:
        return self.lock.combination.name

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        """For each woven Python file, for each line its segments."""
        from generator.code.sourcemap import parse_map  # late: most commands need no map

        remedy = f"Build the package again: {self.lock.combination.command}"
        text = read_plain_file(self.folder / MAP, remedy)
        if sha256(text.encode()) == self.lock.outputs.get(MAP):
            with suppress(LoomError, RecursionError):  # with a hash that a hand put in
                return parse_map(text)
        raise LoomError("is not the map that was built", display_path(self.folder / MAP), remedy)

    def lines(self, path: str) -> list[str]:
        """The lines of a file of the package."""
        remedy = f"Build the package again: {self.lock.combination.command} --force"
        return read_plain_file(self.folder / path, remedy).splitlines()

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
        architecture, target, parts = combination
        lock = Lock(architecture, target, {}, {}, {}, dict.fromkeys(files, ""), parts)
        return cls(Path(combination.name), lock, files)

    @cached_property
    def origins(self) -> dict[str, list[Segments]]:
        """As of a package on disk; without a map that can be read its lines have none."""
        from generator.code.sourcemap import parse_map

        with suppress(LoomError, RecursionError, KeyError, UnicodeDecodeError):
            return parse_map(self.files[MAP].decode())
        return {}

    def lines(self, path: str) -> list[str]:
        return self.files[path].decode("utf-8", "replace").splitlines()


def is_locked(project: Project, folder: Path) -> bool:
    """Whether a folder has a lock, or is that of a package that is not committed."""
    places = [project.generated / combination.name for combination in project.uncommitted()]
    return (folder / LOCK).is_file() or os.path.abspath(folder) in map(os.path.abspath, places)


def find_package(project: Project, word: str) -> MappedPackage:
    """Finds a built package by its name or its folder."""
    for folder in (Path(word), project.generated / word):
        if is_locked(project, folder):
            return MappedPackage.read(folder).check_there()
    if (folder := project.generated / word).is_dir() and word in [package.name for package in project.packages()]:
        raise LoomError(
            f"has no {LOCK}", display_path(folder), f"Take it back from git: git restore {display_path(folder / LOCK)}"
        )
    names = [folder.name for folder in project.locked_folders()]
    raise LoomError(f"{word} is neither a package nor the folder of one", remedy=nearest(word, names))


def built_packages(project: Project) -> list[MappedPackage]:
    """The packages that are kept and have been built, in the order of the list."""
    folders = [project.generated / combination.name for combination in project.packages()]
    found = [package for folder in folders if folder.is_dir() and (package := MappedPackage.read(folder)).is_there]
    if not found:
        remedy = "Build one: gen build ARCH --target=T"
        raise LoomError("no package has been built", display_path(project.generated), remedy)
    return found


def dump_base(files: dict[str, bytes]) -> bytes:
    """The text of `gen.base` for the files of a build."""
    texts = {path: data.decode() for path, data in sorted(files.items()) if path not in (LOCK, MAP)}
    return (json.dumps({"about": ABOUT, "files": texts}, indent=1, ensure_ascii=False) + "\n").encode()


def kept_base(folder: Path) -> dict[str, str]:
    """The files in `gen.base`; none where it is not there. Hashes decide which of them are believed."""
    if kind_of(folder / BASE) != "file":
        return {}
    try:
        files = json.loads(read_plain_file(folder / BASE))["files"]
        return {path: text for path, text in files.items() if isinstance(text, str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def base_texts(folder: Path, lock: Lock, weave: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Gives the text of each file of a package as it was woven, except the map.

    Args:
        weave: weaves it now.
    """
    digests = {path: digest for path, digest in lock.outputs.items() if path != MAP}
    found: dict[str, str] = {}

    def take(texts: dict[str, str]) -> None:
        found.update((path, text) for path, text in texts.items() if sha256(text.encode()) == digests.get(path))

    take(kept_base(folder))
    places = {path: folder / path for path in digests.keys() - found.keys()}
    take({path: it.read_bytes().decode(errors="replace") for path, it in places.items() if kind_of(it) == "file"})
    if found.keys() != digests.keys():
        with suppress(LoomError):  # what cannot be woven now may be in the history
            take(weave())
    for path in sorted(digests.keys() - found.keys()):
        text = older_file(folder, path, digests[path])
        if text is None:
            remedy = f"Take {BASE} back as gen wrote it, fetch the whole history of git, or merge by hand: "
            remedy += "gen build --out DIR makes what is woven now."
            raise LoomError(
                f"what was woven here is found nowhere, in {BASE} neither", display_path(folder / path), remedy
            )
        found[path] = text
    return found
