"""The lock of a package: what it was made from, by which generator, and the hash of every file.

The lock answers two questions without weaving: would a build make the same again, and is a file on disk what a build
wrote? So it holds every thing that can change the output: the sources (each is named by another or by the
command, so no folder's content counts), the generator's own source, and the versions of the tools that shape text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from generator import __version__
from generator.commands.project import LOCK, Combination
from generator.errors import LoomError

TOOLS = ("black", "jinja2", "libcst", "pytokens")


@dataclass(frozen=True)
class Lock:
    """The content of gen.lock.

    Attributes:
        generator: `{"sha256": ..., "version": ...}` of the generator that wove the package.
        tools: name -> version of the tools that shape text.
        inputs: source path -> sha256.
        outputs: path in the package -> sha256, of all files but the lock.
    """

    architecture: str
    target: str
    generator: dict[str, str]
    tools: dict[str, str]
    inputs: dict[str, str]
    outputs: dict[str, str]

    @property
    def combination(self) -> Combination:
        return Combination(self.architecture, self.target)

    def text(self) -> str:
        return json.dumps(self.__dict__, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class Fingerprints:
    """Hashes of what is on disk now; each is taken once and only when asked for.

    Args:
        roots: as in `Project`.
    """

    def __init__(self, roots: tuple[Path, ...]):
        self.roots = roots
        self._sources: dict[str, str] = {}

    @cached_property
    def generator(self) -> str:
        return generator_hash()

    @cached_property
    def tools(self) -> dict[str, str]:
        return tool_versions()

    def source(self, path: str) -> str:
        """The hash of a source file, '' where it is in none of the roots or in more than one."""
        if path not in self._sources:
            found = [root / path for root in self.roots if (root / path).is_file()]
            self._sources[path] = sha256(found[0].read_bytes()) if len(found) == 1 else ""
        return self._sources[path]

    def lock(self, combination: Combination, inputs: dict[str, str], outputs: dict[str, bytes]) -> Lock:
        """The lock of a package woven now.

        Args:
            inputs: source path -> sha256 of the text that was woven.
            outputs: path in the package -> bytes.
        """
        return Lock(
            architecture=combination.architecture,
            target=combination.target,
            generator={"sha256": self.generator, "version": __version__},
            tools=self.tools,
            inputs=inputs,
            outputs={path: sha256(data) for path, data in outputs.items()},
        )

    def changes(self, lock: Lock) -> list[str]:
        """Why a build now could make something else than the lock says; empty where it cannot."""
        reasons = []
        if lock.generator.get("version") != __version__:
            reasons.append(f"gen {lock.generator.get('version')} became {__version__}")
        elif lock.generator.get("sha256") != self.generator:
            reasons.append("the generator's own source changed")
        for tool in sorted(lock.tools.keys() | self.tools.keys()):
            before, now = lock.tools.get(tool, "none"), self.tools.get(tool, "none")
            if before != now:
                reasons.append(f"{tool} {before} became {now}")
        for path, before in lock.inputs.items():
            now = self.source(path)
            if now != before:
                reasons.append(f"{path} {'changed' if now else 'is gone, or there twice'}")
        return reasons


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_below(folder: Path) -> list[str]:
    """Paths below a folder with forward slashes, sorted, without hidden files and Python's caches."""
    result = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        below = Path(place).relative_to(folder).as_posix()
        result += [name if below == "." else f"{below}/{name}" for name in files if not name.startswith(".")]
    return sorted(result)


def generator_hash() -> str:
    """The hash over the generator's own source, without the library that an installed gen carries."""
    folder = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in files_below(folder):
        if path.endswith(".py") and not path.startswith("_library/"):
            digest.update(f"{path}\0{sha256((folder / path).read_bytes())}\n".encode())
    return digest.hexdigest()


def tool_versions() -> dict[str, str]:
    """The installed versions of the tools that shape text.

    Raises:
        LoomError: one is not installed.
    """
    from importlib.util import find_spec

    versions = {}
    for tool in TOOLS:
        spec = find_spec(tool)
        if spec is None or not spec.origin:
            raise LoomError(f"{tool} is not installed", remedy=f"Install it: pip install {tool}.")
        versions[tool] = _version_beside(Path(spec.origin).parent.parent, tool)
    return versions


def _version_beside(folder: Path, tool: str) -> str:
    """The version in the name of the one folder that pip leaves beside a package.

    Asking importlib.metadata costs 40 ms of start-up, so it is the second way.
    """
    pattern = re.compile(rf"{tool}-([^-]+)\.dist-info", re.IGNORECASE)
    found = [match[1] for match in map(pattern.fullmatch, os.listdir(folder)) if match]
    if len(found) == 1:
        return found[0]
    from importlib.metadata import version

    return version(tool)


def read_lock(folder: Path, shown: str, name: str = LOCK) -> Lock:
    """The lock of a package.

    Args:
        folder: the package.
        shown: how messages name the folder.
        name: the file.

    Raises:
        LoomError: there is none, or it is not what gen writes (a merge may have left its marks in it).
    """
    where = f"{shown}/{name}"
    remedy = "Build the package again with --force; what gen would overwrite is listed without it."
    try:
        table = json.loads((folder / name).read_bytes().decode("utf-8"))
        return _lock(table)
    except FileNotFoundError:
        raise LoomError("is missing, so this is no package of gen", where, "Build it: gen build.") from None
    except OSError as error:
        raise LoomError(f"cannot be read: {error.strerror}", where, "Make it a file that you may read.") from None
    except json.JSONDecodeError as error:
        raise LoomError(f"is not JSON: {error.msg}", f"{where}:{error.lineno}", remedy) from None
    except ValueError as error:
        raise LoomError(f"is not a lock of gen: {error}", where, remedy) from None


def _lock(table: Any) -> Lock:
    """Checks what was read: a lock decides which files a build may delete."""
    fields = Lock.__dataclass_fields__
    if not isinstance(table, dict) or set(table) != set(fields):
        raise ValueError(f"it must hold {', '.join(sorted(fields))}")
    for key in ("generator", "tools", "inputs", "outputs"):
        if not isinstance(table[key], dict) or not all(isinstance(value, str) for value in table[key].values()):
            raise ValueError(f"{key} must map names to strings")
    for key in ("architecture", "target"):
        if not isinstance(table[key], str) or not table[key].isidentifier():
            raise ValueError(f"{key} must be a name")
    for path in (*table["inputs"], *table["outputs"]):
        check_inside(path)
    return Lock(**table)


def check_inside(path: str) -> None:
    """Refuses a path that leads out of its folder.

    Raises:
        ValueError: it does, or it is not written in the plain form.
    """
    parts = PurePosixPath(path).parts
    if not parts or path != "/".join(parts) or ".." in parts or "\\" in path or ":" in path:
        raise ValueError(f"{path!r} is not a path inside the folder")
