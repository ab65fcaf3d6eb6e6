"""The import block of a woven file."""

from __future__ import annotations

from itertools import permutations

import pytest

from generator.code.traced import Origin
from generator.errors import LoomError
from generator.language.parts import Import
from generator.package.imports import write_imports


def imported(module: str, name: str = "", alias: str = "", line: int = 1) -> Import:
    return Import(module, name, alias or name or module.split(".")[0], Origin("fragments/model/a.py", line))


IMPORTS = [
    imported("jax.numpy", alias="jnp", line=3),
    imported("jax", line=2),
    imported("os.path"),
    imported("typing", "Any"),
    imported("typing", "NamedTuple"),
    imported("jax", "Array", line=7),
    imported("jax", "lax"),
    imported("jax", "TYPE"),
    imported("flax", "nnx", "nn"),
    imported(".model", "Decoder"),
    imported("..roles", "x"),
]


class TestBlock:
    """Standard library, other packages, this package; sorted as ruff and isort sort."""

    BLOCK = """\
import os.path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx as nn
from jax import TYPE, Array, lax

from ..roles import x
from .model import Decoder
"""

    def test_sorted(self):
        assert write_imports(IMPORTS).text == self.BLOCK

    def test_any_order_and_any_number_of_times(self):
        for first in permutations(IMPORTS[:4]):
            assert write_imports([*IMPORTS, *IMPORTS[4:], *first]).text == self.BLOCK

    def test_origins(self):
        block = write_imports(IMPORTS)
        at = {text: block.origin_at(block.text.index(text)).line for text in ("import jax\n", "jax.numpy", "Array")}
        assert at == {"import jax\n": 2, "jax.numpy": 3, "Array": 7}

    def test_empty(self):
        assert write_imports([]).text == ""

    def test_two_modules_of_one_package(self):
        assert write_imports([imported("os.path"), imported("os")]).text == "import os\nimport os.path\n"


class TestRefused:
    """One name cannot come from two places."""

    @pytest.mark.parametrize(
        "pair",
        [
            (imported("os", "sep"), imported("sys", "sep", line=9)),
            (imported("jax", "numpy"), imported("numpy", line=9)),
            (imported("jax.numpy", alias="np"), imported("numpy", alias="np", line=9)),
        ],
    )
    def test_clash(self, pair):
        first, second = pair
        with pytest.raises(LoomError) as raised:
            write_imports(pair)
        assert str(raised.value) == (
            f"fragments/model/a.py:9: {second.alias} is imported from {second.module} here and from {first.module} at "
            "fragments/model/a.py:1\n  Import one of them under another name."
        )
