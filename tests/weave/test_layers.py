"""Layers written out by the pattern of an architecture, by what goes in and what comes out."""

from __future__ import annotations

from textwrap import dedent

import pytest
from miniature import PACKAGE, definition, files, run, tidy

from generator.recipe.library import Library
from generator.weaver import weave

BLOCK = """
    from generator.language import point

    class Config:
        layers: int = 6  # in all

    class Attention:
        def __init__(self, config, scale):
            self.scale = scale
            point("Attention.made")

        def __call__(self, x):
            x = self.scale * x
            point("Attention.mixed", x)
            return x

    class Block:
        def __init__(self, config, scale):
            self.attention = Attention(config, scale)

        def __call__(self, x):
            x = self.attention(x)
            return x
"""
MODEL = """
    from generator.language import layers
    from generator.language.roles import Block, Config

    class Model:
        def __init__(self, config):
            for group in layers.groups:
                group.stack = group.Block(config, group.count)

        def __call__(self, x):
            for group in layers.groups:
                def block(x, layer: group.Block):
                    x = layer(x)
                    return x
                x = block(x, group.stack)
            return x

    def model(config: Config):
        return Model(config), layers.stacks, layers.stacked(lambda group: group.count * 10), layers.count, layers.sum(lambda layer: min(layer.window, 9))
"""
PLAIN = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", "")
PERIOD = """
    from generator.language import layers
    from generator.language.roles import Block

    class Period:
        def __init__(self, config, scale):
            for layer in layers.period:
                layer.module = layer.Block(config, scale)

        def __call__(self, x):
            for layer in layers.period:
                x = layer.module(x)
            return x
"""
OFFSET = """
    from generator.language import splice

    @splice("Attention.mixed")
    def _(x):
        x = x + 100
"""
WINDOW = """
    from generator.language import splice

    @splice("Attention.made")
    def _(self, window):
        self.window = window
"""
PATTERN = """
    [[layers]]
    pattern = ["local", "full"]
    [kinds.local]
    init = { window = "config.layers" }
    [kinds.full]
    init = { window = "100" }
"""


def model(architecture: str, /, **texts: str) -> str:
    """model.py of a package without its header; fragments whose name ends in `_` are left to kinds to select."""
    common = {f"model/{name}": text for name, text in texts.items() if not name.endswith("_")}
    others = {f"fragments/model/{n}.py": dedent(t).lstrip("\n") for n, t in texts.items() if n.endswith("_")}
    package = PACKAGE + '[requirements]\njax = "jax>=0.10.2"\n'
    library = Library(files(common, f'title = "Toy"\n{dedent(architecture)}', package=package, **others))
    text = weave("toy", "any", library).files["model.py"]
    return text[text.index('"""', text.index('"""') + 3) + 4 :].replace("from .config import Config", "Config = object")


def sizes(**fields: int) -> type:
    """A Config of these sizes."""
    return type("Config", (), fields)


def test_without_a_pattern_a_package_reads_as_if_nothing_could_repeat():
    text = model("", block=BLOCK, model=PLAIN)
    assert definition(text, "Model") == tidy(
        """
        class Model:
            def __init__(self, config):
                self.layers = Block(config, config.layers)

            def __call__(self, x):
                def block(x, layer: Block):
                    x = layer(x)
                    return x

                return block(x, self.layers)
        """
    )
    numbers = 'Model(config), {"layers": range(config.layers)}, config.layers * 10, config.layers\n'
    assert definition(text, "model").endswith(numbers)
    assert model("", block=BLOCK, period=PERIOD, model=PLAIN) == text


def test_a_period():
    number = """
        from generator.language import setting

        def every() -> int:
            return setting("period")
    """
    host = MODEL.replace("Model(config),", "Model(config), every(),").replace("import Block", "import Block, every")
    text = model(PATTERN, block=BLOCK, window=WINDOW, period=PERIOD, number=number, model=host)
    assert definition(text, "Period") == tidy(
        """
        class Period:
            def __init__(self, config, scale):
                self.local = Block(config, scale, window=config.layers)
                self.full = Block(config, scale, window=100)

            def __call__(self, x):
                x = self.local(x)
                return self.full(x)
        """
    )
    assert "self.layers = Period(config, config.layers // 2)" in text
    _, period, numbers, stacks, amount, total = run(text)["model"](sizes(layers=6))
    assert numbers == {"layers.local": range(0, 6, 2), "layers.full": range(1, 6, 2)}
    assert (period, stacks, amount, total) == (2, (30, 30), 6, 3 * min(6, 9) + 3 * min(100, 9))


def test_each_group_has_a_period_of_its_own():
    pattern = """
        [[layers]]
        pattern = ["a", "a", "b"]
        count = "config.layers // 5"
        [[layers]]
        name = "upper"
        pattern = ["a", "b"]
        count = "config.layers // 5"
        [kinds.a]
        [kinds.b]
        fragments = ["model/offset_"]
    """
    text = model(pattern, block=BLOCK, period=PERIOD, model=PLAIN, offset_=OFFSET)
    first, second = definition(text, "Period"), definition(text, "UpperPeriod")
    assert (first.count("ABlock("), first.count("BBlock(")) == (2, 1)
    assert (second.count("ABlock("), second.count("BBlock(")) == (1, 1)
    built, numbers, *_ = run(text)["model"](sizes(layers=5))
    assert sorted(n for stack in numbers.values() for n in stack) == [*range(5)]
    assert type(built.upper_layers).__name__ == "UpperPeriod"


class TestGroups:
    ARCHITECTURE = """
        [[layers]]
        name = "first"
        pattern = ["plain"]
        count = "2"
        [[layers]]
        pattern = ["moved", "moved", "plain"]
        count = "(config.layers - 2) // 3"
        [kinds.plain]
        [kinds.moved]
        fragments = ["model/offset_"]
    """

    def test_each_group_and_each_layer(self):
        """Kinds differ by their fragments alone."""
        text = model(self.ARCHITECTURE, block=BLOCK, period=PERIOD, model=PLAIN, offset_=OFFSET)
        assert definition(text, "Model") == tidy(
            """
            class Model:
                def __init__(self, config):
                    self.first_layers = PlainBlock(config, 2)
                    self.layers = Period(config, (config.layers - 2) // 3)

                def __call__(self, x):
                    def first_block(x, layer: PlainBlock):
                        x = layer(x)
                        return x

                    x = first_block(x, self.first_layers)

                    def block(x, layer: Period):
                        x = layer(x)
                        return x

                    return block(x, self.layers)
            """
        )
        assert "self.moved_0 = MovedBlock(config, scale)" in definition(text, "Period")
        moved = "x = self.scale * x\n        return x + 100\n"
        assert definition(text, "MovedAttention").endswith(moved)
        assert definition(text, "PlainAttention").endswith("(self, x):\n        return self.scale * x\n")
        assert "self.attention = MovedAttention(config, scale)" in definition(text, "MovedBlock")
        made, numbers, stacks, amount = run(text)["model"](sizes(layers=8))
        # one that is plain, then moved, moved, plain; each doubles
        assert made(1) == ((1 * 2 * 2 + 100) * 2 + 100) * 2
        assert numbers == {
            "first_layers": range(2),
            "layers.moved_0": range(2, 8, 3),
            "layers.moved_1": range(3, 8, 3),
            "layers.plain": range(4, 8, 3),
        }
        assert (stacks, amount) == ((20, (20, 20, 20)), 8)

    def test_a_fragment_keeps_its_order_where_layers_use_a_part_of_it(self):
        mix = """
            from generator.language import splice

            class Zero:
                pass

            def before(made: Zero) -> Zero:
                return made

            @splice("Attention.made")
            def _(self):
                self.zero = Zero()
        """
        host = PLAIN.replace("layers.count", "before(None)").replace("Block, Config", "Block, Config, before")
        text = model(self.ARCHITECTURE, block=BLOCK, period=PERIOD, mix=mix, offset_=OFFSET, model=host)
        assert 0 < text.index("class Zero") < text.index("def before")

    def test_what_is_the_same_for_all_kinds_stays_one(self):
        unused = self.ARCHITECTURE.replace('fragments = ["model/offset_"]', "")
        text = model(unused, block=BLOCK, period=PERIOD, model=PLAIN)
        assert "class Block:" in text and "MovedBlock" not in text

    @pytest.mark.parametrize(
        ("pattern", "layers", "numbers"),
        [("", 3, [0, 1, 2]), ('"moved", "plain"', 6, [2, 4]), ('"moved", "moved", "plain"', 8, [2, 3, 5, 6])],
    )
    def test_numbers_of_the_layers_that_have_a_fragment(self, pattern, layers, numbers):
        mark = """
            from generator.language import layers
            from generator.language.roles import Config

            def moved(config: Config):
                return list(layers.numbers)
        """
        mark = dedent(OFFSET) + dedent(mark)
        host = PLAIN.replace("layers.count", "moved(config)").replace("Config\n", "Config, moved\n")
        period = f"// {pattern.count(',') + 1}"
        architecture = self.ARCHITECTURE.replace('"moved", "moved", "plain"', pattern).replace("// 3", period)
        own = dict(period=PERIOD, offset_=mark) if pattern else dict(offset=mark)
        text = model(architecture if pattern else "", block=BLOCK, model=host, **own)
        assert run(text)["model"](sizes(layers=layers))[-1] == numbers


def test_kinds_whose_versions_are_the_same_share_one():
    """It has the name of the first of them."""
    block = BLOCK.replace("x = self.attention(x)\n", 'x = self.attention(x)\n            point("Block.mixed", x)\n')
    double = OFFSET.replace("mixed", "made").replace("(x)", "(self)").replace("x = x + 100", "self.scale *= 2")
    kinds = dict(offset_=OFFSET, wide_=OFFSET.replace("Attention.mixed", "Block.mixed"), double_=double)
    architecture = """
        [[layers]]
        pattern = ["moved", "wide", "plain"]
        [kinds.moved]
        fragments = ["model/offset_"]
        [kinds.wide]
        fragments = ["model/offset_", "model/wide_"]
        [kinds.plain]
        fragments = ["model/double_"]
    """
    text = model(architecture, block=block, period=PERIOD, model=PLAIN, **kinds)
    assert all(f"class {name}Block:" in text for name in ("Moved", "Wide", "Plain"))
    assert "class WideAttention" not in text
    assert "self.attention = MovedAttention(config, scale)" in definition(text, "WideBlock")
    assert "self.attention = PlainAttention(config, scale)" in definition(text, "PlainBlock")
    assert run(text)["model"](sizes(layers=3))[0](1) == ((1 + 100) + 100 + 100) * 2


def test_a_kind_that_says_where_its_layers_are_may_be_in_no_pattern():
    """Nothing of it is woven."""
    pattern = '[[layers]]\npattern = ["a"]\n[kinds.a]\n'
    spare = f'{pattern}[kinds.b]\nwhere = "layer > 3"\nfragments = ["model/offset_"]\n'
    texts = dict(block=BLOCK, model=PLAIN, offset_=OFFSET)
    assert model(spare, **texts) == model(pattern, **texts)
