"""What libraries of several tests have in common is parsed and woven once."""

import functools
from collections.abc import Iterator
from unittest import mock

import compiling  # noqa: F401
import pytest

from generator.fragment import parse_fragment
from generator.library import Library
from generator.package import Package
from generator.weaver import weave


@functools.lru_cache(maxsize=32)
def _woven(architecture: str, target: str, files: tuple[tuple[str, str], ...]) -> Package:
    return weave(architecture, target, Library(dict(files)))


def woven(architecture: str, target: str, library: Library) -> Package:
    return _woven(architecture, target, tuple(library.files.items()))


@pytest.fixture(autouse=True, scope="session")
def woven_once() -> Iterator[None]:
    """Fragments, and the packages that `gen new` asks what they read: its first of a family is the same each time."""
    with (
        mock.patch("generator.library.parse_fragment", functools.cache(parse_fragment)),
        mock.patch("generator.fit.weave", woven),
    ):
        yield
