"""Facts of packages, each version traced in a process that never sees another version of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from generator.disk.cache import cache_key, keep, recall
from generator.disk.look import sha256
from generator.programs.guard import SCRATCH

NEEDED: tuple[str, ...] = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "grain",
    "orbax",
    "safetensors",
    "tyro",
    "einops",
    "matplotlib",
    "rich",
)
NEEDED += ("tensorboardX", "tokenizers")
VERSIONS = ("jax", "jaxlib", "flax", "optax", "numpy", "tyro")
TOGETHER = 4  # packages that a process traces, one after the other: to import jax takes seconds
SECONDS = 600  # for each package
# to compile fast rather than well
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
FLAGS += " --xla_cpu_parallel_codegen_split_count=1"
SIMPLER = " --xla_cpu_use_fusion_emitters=false"  # the simpler of two code generators; later versions have one


Facts = dict[str, Any]


class Version(NamedTuple):
    """A package as it is on one side."""

    side: str  # "before" or "after"
    name: str
    files: dict[str, bytes]

    @property
    def program(self) -> dict[str, bytes]:
        """The files that a program is made of."""
        return {path: data for path, data in self.files.items() if is_program(path)}


def is_program(path: str) -> bool:
    return path.endswith(".py") and not path.startswith("tests/")


# what a package that is traced sees of the environment: no token, no key, no file of credentials (see SECURITY.md)
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT")


def missing() -> list[str]:
    """The libraries that tracing needs and that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def tracer_key() -> list[Any]:
    """What facts depend on beside a package's files: libraries, Python, and the modules here."""
    folder = Path(__file__).parent
    sources = [sha256(path.read_bytes()) for path in sorted(folder.glob("*.py"))]
    return [sys.version, sources, [[name, _version(name)] for name in VERSIONS]]


def _version(name: str) -> str:
    """The version of a library, '' where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def facts_of(versions: list[Version], say: Callable[[str], None]) -> Iterator[tuple[tuple[str, str], Facts]]:
    """The facts of each, with its side and name, as they are known; of one that could not be traced, the reason."""
    tracer, keys = tracer_key(), {}
    waiting: dict[str, list[Version]] = {"before": [], "after": []}
    for version in versions:
        hashes = {path: sha256(data) for path, data in version.program.items()}
        keys[version[:2]] = key = cache_key(tracer, version.name, hashes)
        if (known := recall("facts", key)) is None:
            waiting[version.side].append(version)
        else:
            yield version[:2], known
    sides = []
    for mine in waiting.values():
        size = max(1, min(TOGETHER, -(-len(mine) // max(1, cpus() // 2))))
        sides.append([mine[start : start + size] for start in range(0, len(mine), size)])
    # those of one package beside each other, so that it is soon known what became of it
    batches = [batch for pair in zip_longest(*sides, fillvalue=[]) for batch in pair if batch]
    with ThreadPoolExecutor(cpus()) as pool:
        for batch, found in zip(batches, pool.map(_trace, batches), strict=True):
            for version in batch:
                say(f"traced {version.name} {version.side} the change")
                if "undecided" not in found[version.name]:  # for want of time or memory, perhaps
                    keep("facts", keys[version[:2]], found[version.name])
                yield version[:2], found[version.name]


def cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _trace(batch: list[Version]) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as name:
        folder = os.path.realpath(name)
        for version in batch:
            write_files(version, folder)
        found: dict[str, dict[str, Any]] = {}
        for names in ([version.name for version in batch], *([version.name] for version in batch)):
            left = [name for name in names if name not in found]
            if left:  # again each by itself, where a process with several came to grief
                problem = run_module("tracer", folder, *left)
                for name in left:
                    path = Path(folder, f"{name}.json")
                    if path.is_file():
                        found[name] = json.loads(path.read_bytes())
                    elif len(left) == 1:
                        found[name] = {"undecided": problem}
        return found


def write_files(version: Version, folder: str) -> None:
    for path, data in version.program.items():
        place = Path(folder, version.name, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def run_module(module: str, folder: str, *words: str) -> str:
    """Runs a module of this folder in a process of its own.

    Returns:
        What went wrong, '' where nothing did.
    """
    clean = {name: os.environ[name] for name in KEPT if name in os.environ}
    root = str(Path(__file__).resolve().parents[2])
    flags = FLAGS + (SIMPLER if _version("jaxlib").startswith("0.10.") else "")
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": root, "PYTHONHASHSEED": "0", "HOME": folder}
    command = [sys.executable, "-P", "-m", f"generator.programs.{module}", folder, *words]
    try:
        limit = SECONDS * max(1, len(words))
        ran = subprocess.run(
            command, env=clean | settings, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {limit} seconds"
    if ran.returncode == 0:
        return ""
    last = ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    return f"the process that traced it ended with code {ran.returncode}: {last}"
