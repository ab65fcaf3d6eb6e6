"""The lock of a package: what it was made from, by which generator, and the hash of every file.

It is gen.lock in the package's folder; the locks of packages that are not committed are in one packages.lock.

The lock answers two questions without weaving: would a build make the same again, and is a file on disk what a build
wrote? So it holds every thing that can change the output: the sources (each is named by another or by the
command, so no folder's content counts), the modules that weave, and the versions of the tools that shape text.

It is sealed by a hash of itself, so that what a merge or a hand made of it is not believed. The seal keeps out
mistakes, not forgers: who wants certainty weaves again (`gen check --full`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from generator import __version__
from generator.disk.files import check_inside, display_path, read_plain_file, sha256
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.package.package import Package

GENERATOR = Path(__file__).resolve().parents[1]
LOCK = "gen.lock"
LOCKS = "packages.lock"  # beside packages.toml: the locks of packages that are not committed, by name
MAP = "gen.map"
TOOLS = ("jinja2", "pytokens", "ruff")
# what else gen can do changes no package
WEAVING = ("__init__.py", "code", "errors.py", "language", "package", "recipe", "thread", "weave", "weaver.py")
REMEDY = "Build the package again with --force; what gen would overwrite is listed without it."

Name = Annotated[str, msgspec.Meta(pattern=r"^[^\W\d]\w*\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Combination(NamedTuple):
    """An architecture on a target, and parts: what one package is made from."""

    architecture: str
    target: str
    parts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.architecture}_{self.target}"

    @property
    def command(self) -> str:
        """The command that builds it."""
        return f"gen build {self.architecture} --target={self.target}"

    @property
    def entry(self) -> str:
        """What lists it in packages.toml."""
        parts = f"parts = {json.dumps(self.parts)}\n" if self.parts else ""
        return f'\n[[package]]\narchitecture = "{self.architecture}"\ntarget = "{self.target}"\n{parts}'


@dataclass(frozen=True)
class Lock:
    """The content of gen.lock, without its seal.

    Attributes:
        parts: what was asked for besides training, by name; not in the file where it is nothing.
        generator: `{"sha256": ..., "version": ...}` of the generator that wove the package.
        tools: name -> version of the tools that shape text.
        inputs: source path -> sha256.
        outputs: path in the package -> sha256, of all files but the lock.
    """

    architecture: Name
    target: Name
    generator: dict[str, str]
    tools: dict[str, str]
    inputs: dict[str, Digest]
    outputs: dict[str, Digest]
    parts: tuple[str, ...] = ()

    @property
    def combination(self) -> Combination:
        return Combination(self.architecture, self.target, self.parts)

    @cached_property
    def text(self) -> str:
        """The file, seal included."""
        table = {name: value for name, value in asdict(self).items() if name != "parts" or value}
        seal = sha256(json.dumps(table, sort_keys=True, ensure_ascii=False).encode())
        return _json(table | {"seal": seal})

    @property
    def files(self) -> dict[str, str]:
        """Path in the package -> sha256 of all files, the lock too."""
        return self.outputs | {LOCK: sha256(self.text.encode())}


class Fingerprints:
    """Hashes of what is on disk now; each is taken once and only when asked for.

    Args:
        roots: as in `Project`.
    """

    def __init__(self, roots: tuple[Path, ...]):
        self.roots = roots
        self._sources: dict[str, str] = {}

    @cached_property
    def generator(self) -> dict[str, str]:
        return {"sha256": generator_hash(), "version": __version__}

    @cached_property
    def tools(self) -> dict[str, str]:
        return tool_versions()

    def source(self, path: str) -> str:
        """The hash of a source file, '' where it is in none of the roots or in more than one."""
        if path not in self._sources:
            found = [root / path for root in self.roots if (root / path).is_file()]
            self._sources[path] = sha256(found[0].read_bytes()) if len(found) == 1 else ""
        return self._sources[path]

    def changes(self, lock: Lock) -> list[str]:
        """Why a build now could make something other than what the lock says; empty where it cannot."""
        reasons = []
        if lock.generator.get("version") != __version__:
            reasons.append(f"gen {lock.generator.get('version')} became {__version__}")
        elif lock.generator != self.generator:
            reasons.append("the generator's own source changed")
        for tool in sorted(lock.tools.keys() | self.tools.keys()):
            before, now = lock.tools.get(tool, "none"), self.tools.get(tool, "none")
            if before != now:
                reasons.append(f"{tool} {before} became {now}")
        for path, digest in lock.inputs.items():
            if (now := self.source(path)) != digest:
                reasons.append(f"{path} {'changed' if now else 'is gone, or there twice'}")
        return reasons


def with_records(package: Package, prints: Fingerprints) -> dict[str, bytes]:
    """The bytes of all files of a woven package, its map and its lock included."""
    from generator.code.sourcemap import format_map  # late, as it takes libraries that short commands do without

    files = {path: text.encode() for path, text in package.files.items()}
    files[MAP] = format_map(package.origins).encode()
    outputs = {path: sha256(data) for path, data in files.items()}
    lock = Lock(
        package.architecture, package.target, prints.generator, prints.tools, package.inputs, outputs, package.parts
    )
    return {**files, LOCK: lock.text.encode()}


def generator_hash(parts: tuple[str, ...] = WEAVING, package: Path = GENERATOR) -> str:
    """The hash over modules and folders of the generator: by default over all that weaving imports."""
    paths = {path for part in parts for path in [package / part, *(package / part).rglob("*.py")] if path.is_file()}
    named = sorted((path.relative_to(package).as_posix(), sha256(path.read_bytes())) for path in paths)
    return sha256("".join(f"{name}\0{digest}\n" for name, digest in named).encode())


def tool_versions() -> dict[str, str]:
    """The installed versions of the tools that shape text, by the folders that pip leaves beside them.

    Asking importlib.metadata costs 40 ms of start-up.
    """
    pattern = re.compile(rf"({'|'.join(TOOLS)})-([^-]+)\.dist-info", re.IGNORECASE)
    names = [name for folder in reversed(sys.path) if os.path.isdir(folder) for name in sorted(os.listdir(folder))]
    versions = {match[1].lower(): match[2] for match in map(pattern.fullmatch, names) if match}
    for tool in TOOLS:
        if tool not in versions:
            raise LoomError(f"{tool} is not installed", remedy=f"Install it: pip install {tool}.")
    return versions


def read_lock(folder: Path, asked: Combination | None = None, name: str = LOCK) -> Lock:
    """Reads the lock of the package in a folder; of one that has none of its own, that in packages.lock.

    Args:
        asked: what the package must be, where that is known.
        name: the file.
    """
    place = folder / name
    if name == LOCK and not os.path.lexists(place) and (text := read_locks(folder.parent).get(folder.name)):
        where = display_path(folder.parent / LOCKS)
    else:
        text, where = read_plain_file(place, REMEDY), display_path(place)
    try:
        lock = parse_lock(text)
        sealed = lock.text == text
    except (ValueError, RecursionError) as error:
        raise LoomError(f"is not a lock of gen: {error}", where, REMEDY) from None
    if not sealed:  # a merge may have mixed two
        raise LoomError("is not as gen wrote it", where, REMEDY)
    if asked and asked.name != lock.combination.name:
        raise LoomError(f"is of {lock.combination.name}", where, REMEDY)
    return lock


@lru_cache(maxsize=256)  # a command asks several times
def parse_lock(text: str) -> Lock:
    """Checks what was read, except the seal: a lock decides which files a build may delete.

    Raises:
        ValueError: it is not the text of a lock.
    """
    lock = msgspec.json.decode(text, type=Lock)
    for path in lock.inputs | lock.outputs:
        check_inside(path)
    return lock


def read_locks(generated: Path) -> dict[str, str]:
    """Name -> text of each lock in packages.lock; none where there is no such file."""
    place = generated / LOCKS
    if not os.path.lexists(place):
        return {}
    try:
        return split_locks(read_plain_file(place))
    except (ValueError, RecursionError) as error:
        remedy = "Build all packages: gen build --all"
        raise LoomError(f"is not as gen wrote it: {error}", display_path(place), remedy) from None


@lru_cache(maxsize=4)
def split_locks(text: str) -> dict[str, str]:
    """Name -> text of each lock in the text of packages.lock."""
    return {name: _json(lock) for name, lock in msgspec.json.decode(text, type=dict[str, dict]).items()}


def join_locks(locks: dict[str, str]) -> str:
    """The text of packages.lock."""
    return _json({name: json.loads(text) for name, text in locks.items()})


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
