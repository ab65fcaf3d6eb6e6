"""What libraries of several tests have in common is parsed and woven once."""

import functools
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import compiling  # noqa: F401
import coverage
import jax
import pytest

from generator.language.fragment import parse_fragment
from generator.package.package import Package
from generator.recipe.library import Library
from generator.weaver import weave


def pytest_sessionfinish() -> None:
    """xdist kills a worker 10 s after its last test; one that compiled thousands of programs takes longer to end."""
    if measured := coverage.Coverage.current():
        measured.save()


@functools.lru_cache(maxsize=32)
def _woven(architecture: str, target: str, files: tuple[tuple[str, str], ...]) -> Package:
    return weave(architecture, target, Library(dict(files)))


def woven(architecture: str, target: str, library: Library) -> Package:
    return _woven(architecture, target, tuple(library.files.items()))


@pytest.fixture(autouse=True, scope="session")
def woven_once() -> Iterator[None]:
    """Fragments, and the packages that `gen new` asks what they read: its first of a family is the same each time."""
    with (
        mock.patch("generator.recipe.library.parse_fragment", functools.cache(parse_fragment)),
        mock.patch("generator.checkpoint.fit.weave", woven),
    ):
        yield


@pytest.fixture(autouse=True)
def forgotten_programs() -> Iterator[None]:
    """Linux lets a process map 65,530 pieces of memory; a compiled program takes some, and one more ends the process."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
