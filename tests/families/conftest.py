"""What libraries of several tests have in common is woven once."""

import functools
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

import compiling  # noqa: F401
import coverage
import jax
import pytest

from generator import weaver
from generator.package.package import Package
from generator.recipe.library import Library
from generator.weaver import weave


def pytest_sessionfinish() -> None:
    """xdist kills a worker 10 s after its last test; one that compiled thousands of programs takes longer to end."""
    if measured := coverage.Coverage.current():
        measured.save()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a trainer that ran here has left a handler of its own


@functools.lru_cache(maxsize=64)
def _woven(
    architecture: str,
    target: str,
    files: tuple[tuple[str, str], ...],
    builtin: frozenset[str],
    without: tuple[str, ...],
    parts: tuple[str, ...],
) -> Package:
    return weave(architecture, target, Library(dict(files), builtin), without, parts)


def woven(
    architecture: str, target: str, library: Library, without: Collection[str] = (), parts: Collection[str] = ("all",)
) -> Package:
    return _woven(architecture, target, tuple(library.files.items()), library.builtin, tuple(without), tuple(parts))


weaver.weave = woven  # for modules that import it from now on


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs a file, which makes and weaves what its tests share, unless its tests say otherwise."""
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.name))


@pytest.fixture(autouse=True)
def forgotten_programs() -> Iterator[None]:
    """Linux lets a process map 65,530 pieces of memory; a compiled program takes some, and one more ends the process."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
