"""An architecture that leaves out what its base has, by what goes in and what comes out."""

from __future__ import annotations

from textwrap import dedent

import pytest
from miniature import PACKAGE, files

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.weaver import weave

MODEL = """
    from generator.language import point
    from generator.language.roles import Config

    class Config:
        width: int  # of it

    def model(config: Config):
        size = config.width
        point("model.size", size, config)
        return size
"""
WINDOW = """
    from generator.language import splice

    class Config:
        window: int  # in tokens

    @splice("model.size")
    def _(size, config):
        size = min(size, config.window)
"""
BASE = """
title = "Toy"
[presets.tiny]
width = 4
window = 2
"""


def config_of(variant: str, base: str = BASE, kinds: bool = False, window: str = WINDOW) -> str:
    """config.py of a variant of an architecture with a window, which all its layers have or those of a kind."""
    package = PACKAGE.replace('"model"]', '"model", "PRESETS"]')
    selected = {"model/model": MODEL} if kinds else {"model/model": MODEL, "model/window": window}
    texts = files(selected, architecture=base, package=package)
    texts["fragments/model/window.py"] = dedent(window)
    texts["templates/architectures/variant.toml"] = f'base = "toy"\ntitle = "Variant"\n{variant}'
    return weave("variant", "any", Library(texts)).files["config.py"]


def test_presets_of_the_base_lose_the_fields_of_what_is_left_out():
    assert "width=4,\n        window=2,\n" in config_of("")
    left = config_of('without = ["model/window"]')
    assert "width=4,\n    )" in left and "window" not in left


def test_presets_of_the_variant_itself_may_not_set_them():
    with pytest.raises(LoomError, match="no selected fragment has the field 'window'"):
        config_of('without = ["model/window"]\n[presets.tiny]\nwindow = 3\n')


def test_presets_can_be_left_out():
    left = config_of('without_presets = ["tiny"]\n[presets.small]\nwidth = 8\nwindow = 3\n')
    assert '"small": Config(' in left and "tiny" not in left
    with pytest.raises(LoomError, match="no base has the preset 'tny', which is to be left out"):
        config_of('without_presets = ["tny"]\n')


def test_the_kinds_of_the_variant_select_in_place_of_those_of_the_base():
    base = BASE.replace(
        "[presets", '[[layers]]\npattern = ["near"]\n[kinds.near]\nfragments = ["model/window"]\n[presets'
    )
    far = '[[layers]]\npattern = ["far"]\n[kinds.far]\n'
    assert "width=4,\n        window=2,\n" in config_of(far + 'fragments = ["model/window"]\n', base, kinds=True)


def test_a_pattern_alone_is_of_the_kinds_of_the_base():
    near = '[[layers]]\npattern = ["near"]\n[kinds.near]\nwhere = "layer <= 3"\n[kinds.far]\nwhere = "layer > 3"\n'
    base = BASE.replace("[presets", f'{near}fragments = ["model/window"]\n[presets')
    assert "window" not in config_of("", base, kinds=True)
    assert "width=4,\n        window=2,\n" in config_of('[[layers]]\npattern = ["far"]\n', base, kinds=True)


def test_lists_in_presets_are_as_frozen_as_the_config():
    several = WINDOW.replace("window: int", "window: tuple[int, ...]")
    assert "window=(2, 3)," in config_of("", BASE.replace("window = 2", "window = [2, 3]"), window=several)
    assert "window=(2,)," in config_of("", BASE.replace("window = 2", "window = [2]"), window=several)


def test_what_every_package_holds_is_left_out_where_it_requires_more():
    more = {
        "model/check": 'from generator.language import requires\n\nrequires("window")\n\n\ndef main():\n    return 1\n'
    }
    package = PACKAGE.replace("[folders]", 'fragments = ["model/check"]\n\n[folders]', 1)
    texts = files({"model/model": MODEL, "model/window": WINDOW}, architecture=BASE, package=package)
    texts |= {f"fragments/{name}.py": text for name, text in more.items()}
    texts["templates/architectures/variant.toml"] = 'base = "toy"\ntitle = "Variant"\nwithout = ["model/window"]\n'
    assert "model/check" in {f.name for f in select("toy", "any", Library(texts)).fragments}
    assert "model/check" not in {f.name for f in select("variant", "any", Library(texts)).fragments}
