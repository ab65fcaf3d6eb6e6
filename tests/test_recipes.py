"""Recipes of a target: which row a package has, and what is wrong with a row."""

from __future__ import annotations

import pytest
from miniature import PACKAGE, files

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weaver import weave

MODEL = {
    "model/model": '''
        """The model."""

        from typing import Annotated

        from generator.language.roles import CHIPS, HARDWARE, RECIPES, PositiveInt

        class Config:
            width: PositiveInt = 1  # of the stream
            remat: str = "none"
            mesh_data: Annotated[int, -1, 100] = 1
            mesh_fsdp: Annotated[int, -1, 100] = -1

        PositiveInt = Annotated[int, 1, 100]

        def model():
            return CHIPS, HARDWARE, RECIPES
    ''',
    "config/tables": '''
        """What the tables hold."""

        from typing import NamedTuple

        class Chip(NamedTuple):
            kinds: tuple[str, ...]
            speed: float

        class Hardware(NamedTuple):
            devices: int
            topology: str
            flags: str = ""

        class Recipe(NamedTuple):
            settings: dict[str, object]
            flags: str = ""
    ''',
    "model/share": '''
        """A number with bounds."""

        from typing import Annotated

        class Config:
            share: Annotated[float, 0.1, 1] = 0.5
    ''',
}
ARCHITECTURE = 'title = "A"\n[presets.small]\nwidth = 8\n[presets.big]\nwidth = 9\n'
HEAD = """\
[hardware.fast-8]
topology = "swift:2x4"
devices = 8
flags = ["--a=1", "--b=2"]
[hardware.slow-1]
topology = "slow"
devices = 1
"""
TARGET = """
[settings.chips.swift]
kinds = ["Swift", "Swift 2"]
speed = 1e12
price = 3
[settings.chips.slow]
kinds = ["Slow"]
speed = 1
"""


def row(presets: str = '["small"]', settings: str = "{ width = 4 }", hardware: str = "fast-8", more: str = "") -> str:
    text = f'hardware = "{hardware}"\npresets = {presets}\nsettings = {settings}\nfigures = "3 GiB"\nwhy = "fits"\n'
    return f"[[recipe]]\n{text}{more}\n"


def config_of(recipes: str, target: str = TARGET) -> str:
    package = PACKAGE.replace("[folders]", '[folders]\nconfig = "config.py"')
    texts = files(MODEL, ARCHITECTURE, package=package) | {"targets/any/recipes.toml": HEAD + recipes}
    texts["targets/any/target.toml"] += target
    return weave("toy", "any", Library(texts)).files["config.py"]


def test_rows_are_sorted_and_hardware_without_a_row_is_left_out():
    text = config_of(row('["big", "small"]', more='flags = ["--c=3"]'))
    tables: dict = {}
    exec(text, tables)
    chips = {"swift": (("Swift", "Swift 2"), 1e12), "slow": (("Slow",), 1)}  # with the fields that Chip has
    assert tables["CHIPS"] == chips
    assert tables["HARDWARE"] == {"fast-8": (8, "swift:2x4", "--a=1 --b=2")}
    assert list(tables["RECIPES"].items()) == [
        (("small", "fast-8"), ({"width": 4}, "--c=3")),
        (("big", "fast-8"), ({"width": 4}, "--c=3")),
    ]
    assert "# 3 GiB" in text


def test_a_row_of_an_architecture_wins():
    text = config_of(row(settings="{ width = 5 }", more='architectures = ["toy"]') + row())
    assert '("small", "fast-8"): Recipe({"width": 5})' in text


@pytest.mark.parametrize(
    ("recipes", "line", "words"),
    [
        (row(hardware="fast-9"), 9, "unknown hardware 'fast-9'"),
        (row(more='architectures = ["tow"]'), 14, "unknown architecture 'tow'"),
        (row(more='parts = ["offlod"]'), 14, "unknown part 'offlod'"),
        (row('["smal"]', more='architectures = ["toy"]'), 10, "toy has no preset 'smal'"),
        (row(settings="{ wdth = 4 }"), 11, "no selected fragment has the field 'wdth'"),
        (row(settings='{ width = "4" }'), 11, "width is '4'"),
        (row(settings="{ width = 0 }"), 11, "width is 0"),
        (row(settings="{ share = 0.01 }"), 11, "share is 0.01"),
        (row(settings="{ mesh_data = 3 }"), 11, "mesh_data = 3, mesh_fsdp = -1 do not make 8 devices"),
        (row(settings="{ mesh_fsdp = 4 }"), 11, "do not make 8 devices"),
        (row(settings="{ mesh_data = -1 }"), 11, "do not make 8 devices"),
        (row(settings="{ mesh_data = 0 }"), 11, "do not make 8 devices"),
        (row() + row(), 17, "a second recipe for small on fast-8"),
        (row(more='why2 = "x"'), 14, "why2"),
        (row('["smal"]'), 10, "no architecture has the preset 'smal'"),
        (row(more='flags = ["--a=1 --b=2"]'), 14, "'--a=1 --b=2' is no flag"),
        ('[hardware.no]\ntopology = "x"\ndevices = 0\n', 10, "no has 0 devices"),
        ('[hardware.no]\ntopology = "swift:8x8x8"\ndevices = 256\n', 10, "256 devices, and swift:8x8x8 512"),
        ("[[recipe]]\n", 8, "hardware"),
    ],
)
def test_refused(recipes, line, words):
    with pytest.raises(LoomError) as raised:
        config_of(recipes)
    assert words in str(raised.value) and f"targets/any/recipes.toml:{line}:" in str(raised.value)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (TARGET.replace("chips.slow", "chips.slower"), "recipes.toml:6: slow-1: unknown chip 'slow'"),
        (TARGET.replace("speed = 1\n", ""), r"target.toml:\d+: the chip slow has no speed"),
        ("[settings]\nchips = 3\n", r"target.toml:\d+: chips is no table of tables"),
    ],
)
def test_a_topology_is_of_a_chip_that_the_target_has(target, words):
    with pytest.raises(LoomError, match=words):
        config_of(row(), target)
