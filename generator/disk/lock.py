"""The lock of a package: digests of its inputs, its generator, its tools and every output.

It is gen.lock in the package's folder; packages.lock has the locks of the packages that are not committed.

A lock answers two questions without weaving: would a build make the same package again, and is a file on disk as a
build wrote it? So it covers all that can change the output: the sources (each is named by another or by the command, so
the listing of a folder does not count), the modules that weave, and the versions of the tools that shape text.

A lock is sealed by its own hash, so that one that a merge or an edit changed is not trusted. The seal protects against
mistakes, not forgery: `gen check --full` trusts no lock.
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
from generator.disk.files import check_relative_path, display_path, read_plain_file, sha256
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.package.package import Package

GENERATOR = Path(__file__).resolve().parents[1]
LOCK = "gen.lock"
LOCKS = "packages.lock"  # beside packages.toml: the locks of uncommitted packages, by name
MAP = "gen.map"
TOOLS = ("black", "jinja2", "libcst", "pytokens")
# the rest of the generator cannot change a package
WEAVING = ("__init__.py", "code", "errors.py", "language", "package", "recipe", "thread", "tidy", "weave", "weaver.py")
REMEDY = "Build the package again with --force; what gen would overwrite is listed without it."

Name = Annotated[str, msgspec.Meta(pattern=r"^[^\W\d]\w*\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Combination(NamedTuple):
    """An architecture, a target and parts, which determine one package."""

    architecture: str
    target: str
    parts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.architecture}_{self.target}"

    @property
    def command(self) -> str:
        """The command that builds the package."""
        return f"gen build {self.architecture} --target={self.target}"

    @property
    def entry(self) -> str:
        """The package's entry in packages.toml."""
        parts = f"parts = {json.dumps(self.parts)}\n" if self.parts else ""
        return f'\n[[package]]\narchitecture = "{self.architecture}"\ntarget = "{self.target}"\n{parts}'


@dataclass(frozen=True)
class Lock:
    """The content of gen.lock, except its seal.

    Attributes:
        parts: requested parts by name; the file omits an empty list.
        generator: `{"sha256": ..., "version": ...}` of the generator that wove the package.
        tools: name -> version of the tools that shape text.
        inputs: source path -> sha256.
        outputs: path in the package -> sha256, of all files except the lock.
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
        """The text of the file, with the seal."""
        table = {name: value for name, value in asdict(self).items() if name != "parts" or value}
        seal = sha256(json.dumps(table, sort_keys=True, ensure_ascii=False).encode())
        return _format_json(table | {"seal": seal})

    @property
    def files(self) -> dict[str, str]:
        """Path in the package -> sha256 of all files, including the lock."""
        return self.outputs | {LOCK: sha256(self.text.encode())}


class InputDigests:
    """Digests of the inputs that are on disk now, each computed once, when it is first needed.

    Args:
        roots: as in `Project`.
    """

    def __init__(self, roots: tuple[Path, ...]):
        self.roots = roots
        self._sources: dict[str, str] = {}

    @cached_property
    def generator(self) -> dict[str, str]:
        return {"sha256": hash_generator(), "version": __version__}

    @cached_property
    def tools(self) -> dict[str, str]:
        return find_tool_versions()

    def hash_source(self, path: str) -> str:
        """Returns the digest of a source file; "" if no root or more than one has it."""
        if path not in self._sources:
            places = [root / path for root in self.roots if (root / path).is_file()]
            self._sources[path] = sha256(places[0].read_bytes()) if len(places) == 1 else ""
        return self._sources[path]

    def find_changes(self, lock: Lock) -> list[str]:
        """Lists the reasons why a build could now differ from the lock; empty if it cannot."""
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
            if (current := self.hash_source(path)) != digest:
                reasons.append(f"{path} {'changed' if current else 'is gone, or in two libraries'}")
        return reasons


def encode_package(package: Package, digests: InputDigests) -> dict[str, bytes]:
    """Returns the bytes of all files of a woven package, including its map and its lock."""
    from generator.code.sourcemap import format_map  # imported late: short commands do not need its libraries

    files = {path: text.encode() for path, text in package.files.items()}
    files[MAP] = format_map(package.origins).encode()
    outputs = {path: sha256(data) for path, data in files.items()}
    name = package.architecture, package.target
    lock = Lock(*name, digests.generator, digests.tools, package.inputs, outputs, package.parts)
    return {**files, LOCK: lock.text.encode()}


def hash_generator(package: Path = GENERATOR) -> str:
    """Returns the digest of the modules of the generator that weaving imports."""
    paths = {path for part in WEAVING for path in [package / part, *(package / part).rglob("*.py")] if path.is_file()}
    named = sorted((path.relative_to(package).as_posix(), sha256(path.read_bytes())) for path in paths)
    return sha256("".join(f"{name}\0{digest}\n" for name, digest in named).encode())


def find_tool_versions() -> dict[str, str]:
    """Finds the installed versions of the tools that shape text, in the names of their .dist-info folders.

    importlib.metadata would add 40 ms to the start of every command.
    """
    pattern = re.compile(rf"({'|'.join(TOOLS)})-([^-]+)\.dist-info", re.IGNORECASE)
    names = [name for folder in reversed(sys.path) if os.path.isdir(folder) for name in sorted(os.listdir(folder))]
    versions = {match[1].lower(): match[2] for match in map(pattern.fullmatch, names) if match}
    for tool in TOOLS:
        if tool not in versions:
            raise LoomError(f"{tool} is not installed", remedy=f"Install it: pip install {tool}.")
    return versions


def read_lock(folder: Path, combination: Combination | None = None, name: str = LOCK) -> Lock:
    """Reads the lock in a package's folder; without one, reads the package's lock in packages.lock.

    Args:
        combination: must be that of the lock, if it is given.
        name: of the file.
    """
    path = folder / name
    if name == LOCK and not os.path.lexists(path) and (text := read_locks(folder.parent).get(folder.name)):
        where = display_path(folder.parent / LOCKS)
    else:
        text, where = read_plain_file(path, REMEDY), display_path(path)
    try:
        lock = parse_lock(text)
        is_sealed = lock.text == text
    except (ValueError, RecursionError) as error:
        raise LoomError(f"is not a lock of gen: {error}", where, REMEDY) from None
    if not is_sealed:  # a merge may have mixed two locks
        raise LoomError("is not as gen wrote it", where, REMEDY)
    if combination and combination.name != lock.combination.name:
        raise LoomError(f"is of {lock.combination.name}", where, REMEDY)
    return lock


@lru_cache(maxsize=256)  # a command reads a lock several times
def parse_lock(text: str) -> Lock:
    """Parses a lock and validates its paths, because a lock decides which files a build may delete.

    Does not verify the seal.

    Raises:
        ValueError: the text is not that of a lock.
    """
    lock = msgspec.json.decode(text, type=Lock)
    for path in lock.inputs | lock.outputs:
        check_relative_path(path)
    return lock


def read_locks(generated: Path) -> dict[str, str]:
    """Reads packages.lock: the name of a package -> the text of its lock; empty if there is no such file."""
    path = generated / LOCKS
    if not os.path.lexists(path):
        return {}
    try:
        return parse_locks(read_plain_file(path))
    except (ValueError, RecursionError) as error:
        remedy = "Build all packages: gen build --all"
        raise LoomError(f"is not as gen wrote it: {error}", display_path(path), remedy) from None


@lru_cache(maxsize=4)
def parse_locks(text: str) -> dict[str, str]:
    """Splits the text of packages.lock: the name of a package -> the text of its lock."""
    return {name: _format_json(lock) for name, lock in msgspec.json.decode(text, type=dict[str, dict]).items()}


def format_locks(locks: dict[str, str]) -> str:
    """Returns the text of packages.lock."""
    return _format_json({name: json.loads(text) for name, text in locks.items()})


def _format_json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
