"""Layers written out by the pattern of an architecture, by what goes in and what comes out."""

from __future__ import annotations

from textwrap import dedent

import pytest
from miniature import PACKAGE, definition, files, run, tidy

from generator.errors import LoomError
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
CACHE = """
    from generator.language import emit, provide, splice

    @provide("Model.__call__", optional=True, per_layer=True)
    def cache():
        return None

    @splice("Attention.mixed")
    def _(x, cache):
        cache = x if cache is None else cache + x
        emit(cache)
"""
SCANNED = """
    import jax
    import jax.numpy as jnp
    from generator.language import layers, receive
    from generator.language.roles import Block

    class Model:
        def __init__(self):
            for group in layers.groups:
                group.stack = jax.vmap(lambda key: group.Block(None, key))(jnp.ones(2))

        def __call__(self, x):
            for group in layers.groups:
                def block(x, inputs: group.Block):
                    x = inputs(x)
                    return x, None
                x, _ = jax.lax.scan(block, x, group.stack)
            return x

    def model(x):
        made: Model = Model()
        out = made(x)
        receive(cache)
        return out, cache
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


class TestUniform:
    """Without a pattern a package reads as if nothing could repeat."""

    AFTER = """
        class Model:
            def __init__(self, config):
                self.layers = Block(config, config.layers)

            def __call__(self, x):
                def block(x, layer: Block):
                    x = layer(x)
                    return x

                x = block(x, self.layers)
                return x
    """

    def test_woven(self):
        text = model("", block=BLOCK, model=MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", ""))
        assert definition(text, "Model") == tidy(self.AFTER)
        numbers = 'Model(config), {"layers": range(config.layers)}, config.layers * 10, config.layers\n'
        assert definition(text, "model").endswith(numbers)


def test_without_a_pattern_a_period_leaves_nothing():
    uniform = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", "")
    assert model("", block=BLOCK, period=PERIOD, model=uniform) == model("", block=BLOCK, model=uniform)


class TestAPeriod:
    AFTER = """
        class Period:
            def __init__(self, config, scale):
                self.local = Block(config, scale, window=config.layers)
                self.full = Block(config, scale, window=100)

            def __call__(self, x):
                x = self.local(x)
                x = self.full(x)
                return x
    """

    def test_woven(self):
        text = model(PATTERN, block=BLOCK, window=WINDOW, period=PERIOD, model=MODEL)
        assert definition(text, "Period") == tidy(self.AFTER)
        assert "self.layers = Period(config, config.layers // 2)" in text

    def test_counts(self):
        text = model(PATTERN, block=BLOCK, window=WINDOW, period=PERIOD, model=MODEL)
        names = run(text)

        class Config:
            layers = 6

        _, numbers, stacks, amount, total = names["model"](Config)
        assert numbers == {"layers.local": range(0, 6, 2), "layers.full": range(1, 6, 2)}
        assert stacks == (30, 30)
        assert amount == 6
        assert total == 3 * min(6, 9) + 3 * min(100, 9)

    def test_how_many_layers_a_period_has(self):
        number = """
            from generator.language import setting

            def every() -> int:
                return setting("period")
        """
        call = MODEL.replace("return Model(config),", "return every(), Model(config),").replace(
            "import Block", "import Block, every"
        )
        text = model(PATTERN, block=BLOCK, window=WINDOW, period=PERIOD, number=number, model=call)
        assert run(text)["every"]() == 2


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
    MODEL = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", "")

    def woven(self) -> str:
        return model(self.ARCHITECTURE, block=BLOCK, period=PERIOD, model=self.MODEL, offset_=OFFSET)

    def test_each_group_and_each_layer(self):
        text = self.woven()
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

                    x = block(x, self.layers)
                    return x
            """
        )
        assert "self.moved_0 = MovedBlock(config, scale)" in definition(text, "Period")

    def test_kinds_differ_by_their_fragments_alone(self):
        text = self.woven()
        assert definition(text, "MovedAttention").endswith(
            "x = self.scale * x\n        x = x + 100\n        return x\n"
        )
        assert definition(text, "PlainAttention").endswith("(self, x):\n        return self.scale * x\n")
        assert "self.attention = MovedAttention(config, scale)" in definition(text, "MovedBlock")

    def test_it_computes_what_the_pattern_says(self):
        class Config:
            layers = 8

        made, numbers, stacks, amount = run(self.woven())["model"](Config)
        # one that is plain, then moved, moved, plain; each doubles
        assert made(1) == ((1 * 2 * 2 + 100) * 2 + 100) * 2
        assert numbers == {
            "first_layers": range(2),
            "layers.moved_0": range(2, 8, 3),
            "layers.moved_1": range(3, 8, 3),
            "layers.plain": range(4, 8, 3),
        }
        assert stacks == (20, (20, 20, 20))
        assert amount == 8

    def test_what_layers_use_stays_before_the_rest_of_its_fragment(self):
        scales = "class Scale:\n    pass\n\n\ndef no_scale(x) -> Scale:\n    return x\n"
        using = BLOCK.replace(
            "def __call__(self, x):\n            x = self.scale * x",
            "def __call__(self, x: Scale):\n            x = self.scale * x",
        )
        using = using.replace("import point", "import point\n    from generator.language.roles import Scale")
        calling = self.MODEL.replace("import Block", "import Block, no_scale").replace(
            "return x\n", "return no_scale(x)\n", 1
        )
        text = model(self.ARCHITECTURE, block=using, period=PERIOD, model=calling, offset_=OFFSET, scales=scales)
        assert 0 < text.index("class Scale") < text.index("def no_scale")

    def test_what_is_the_same_for_all_kinds_stays_one(self):
        unused = self.ARCHITECTURE.replace('fragments = ["model/offset_"]', "")
        text = model(unused, block=BLOCK, period=PERIOD, model=self.MODEL)
        assert "class Block:" in text and "MovedBlock" not in text


class TestKindsThatShare:
    """Kinds whose versions are the same share one, which has the name of the first of them."""

    DOUBLE = OFFSET.replace("mixed", "made").replace("(x)", "(self)").replace("x = x + 100", "self.scale *= 2")
    WIDE = OFFSET.replace("Attention.mixed", "Block.mixed")
    ARCHITECTURE = """
        [[layers]]
        pattern = ["moved", "wide", "plain"]
        [kinds.moved]
        fragments = ["model/offset_"]
        [kinds.wide]
        fragments = ["model/offset_", "model/wide_"]
        [kinds.plain]
        fragments = ["model/double_"]
    """

    def woven(self) -> str:
        block = BLOCK.replace("x = self.attention(x)\n", 'x = self.attention(x)\n            point("Block.mixed", x)\n')
        host = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", "")
        kinds = dict(offset_=OFFSET, wide_=self.WIDE, double_=self.DOUBLE)
        return model(self.ARCHITECTURE, block=block, period=PERIOD, model=host, **kinds)

    def test_what_differs_has_a_name_of_its_own(self):
        text = self.woven()
        assert [name for name in ("Moved", "Wide", "Plain") if f"class {name}Block:" in text] == [
            "Moved",
            "Wide",
            "Plain",
        ]
        assert "class WideAttention" not in text
        assert "self.attention = MovedAttention(config, scale)" in definition(text, "WideBlock")
        assert "self.attention = PlainAttention(config, scale)" in definition(text, "PlainBlock")

    def test_it_computes_what_the_kinds_say(self):
        class Config:
            layers = 3

        assert run(self.woven())["model"](Config)[0](1) == ((1 + 100) + 100 + 100) * 2


class TestOwnLayers:
    """The numbers of the layers that have a fragment, as it says layers.numbers itself."""

    MARK = (
        OFFSET
        + """
    from generator.language import layers
    from generator.language.roles import Config

    def moved(config: Config):
        return list(layers.numbers)
"""
    )

    def moved(self, architecture: str, layers: int, **texts: str) -> list[int]:
        host = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", ", moved(config)").replace(
            "Config\n", "Config, moved\n"
        )

        class Config:
            pass

        Config.layers = layers
        return run(model(architecture, block=BLOCK, model=host, **texts))["model"](Config)[-1]

    def test_all(self):
        assert self.moved("", 3, offset=dedent(self.MARK)) == [0, 1, 2]

    def test_one_stack(self):
        pattern = TestGroups.ARCHITECTURE.replace('"moved", "moved", "plain"', '"moved", "plain"').replace(
            "// 3", "// 2"
        )
        assert self.moved(pattern, 6, period=PERIOD, offset_=dedent(self.MARK)) == [2, 4]

    def test_several_stacks(self):
        assert self.moved(TestGroups.ARCHITECTURE, 8, period=PERIOD, offset_=dedent(self.MARK)) == [2, 3, 5, 6]


class TestOrder:
    MIX = """
        from generator.language import splice

        class Zero:
            pass

        def before(made: Zero) -> Zero:
            return made

        @splice("Attention.made")
        def _(self):
            self.zero = Zero()
    """

    def test_a_fragment_keeps_its_order_where_layers_use_a_part_of_it(self):
        pattern = (
            '[[layers]]\npattern = ["plain", "moved"]\n[kinds.plain]\n[kinds.moved]\nfragments = ["model/offset_"]\n'
        )
        fragments = dict(block=BLOCK, period=PERIOD, mix=self.MIX, offset_=OFFSET)
        host = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", ", before(None)").replace(
            "Block, Config", "Block, Config, before"
        )
        text = model(pattern, model=host, **fragments)
        assert text.index("class Zero") < text.index("def before")


class TestValuesOfEachLayer:
    """What each layer has of a value is one of a tuple, in a period and over groups."""

    def test_a_period(self):
        pattern = '[[layers]]\npattern = ["first", "second"]\n[kinds.first]\n[kinds.second]\n'
        text = model(pattern, block=BLOCK, period=PERIOD, scanned=SCANNED, cache=CACHE)
        assert definition(text, "Period").split("def __call__")[1] == (
            "(self, x, cache):\n"
            "        cache = cache or (None,) * 2\n"
            "        x, first_cache = self.first(x, cache[0])\n"
            "        x, second_cache = self.second(x, cache[1])\n"
            "        return x, (first_cache, second_cache)\n"
        )


class TestValuesThatAreThreaded:
    """A kind of layer is called with a value from further out, which its other calls do not get."""

    ANGLES = """
        from generator.language import provide, splice

        @provide("Model.__call__")
        def angles():
            return 1

        @provide("Model.__call__")
        def slow_angles():
            return 2

        @splice("Attention.mixed")
        def _(x, angles):
            x = x + angles
    """

    def test_only_what_calls_a_layer_has_it(self):
        pattern = '[[layers]]\npattern = ["a", "b"]\n[kinds.a]\n[kinds.b]\ncall = { angles = "slow_angles" }\n'
        plain = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", "")
        text = model(pattern, block=BLOCK, period=PERIOD, model=plain, angles=self.ANGLES)
        assert definition(text, "Period") == tidy(
            """
            class Period:
                def __init__(self, config, scale):
                    self.a = Block(config, scale)
                    self.b = Block(config, scale)

                def __call__(self, x, angles, slow_angles):
                    x = self.a(x, angles)
                    x = self.b(x, angles=slow_angles)
                    return x
            """
        )

    def test_a_value_that_callers_may_give_keeps_its_place(self):
        ids = """
            from generator.language import provide, splice

            @provide("Model.__call__", optional=True)
            def position() -> int:
                return 3

            @provide("Model.__call__", optional=True)
            def segment() -> int:
                return 4

            @provide("Model.__call__")
            def chunk(segment) -> int:
                return segment + 1

            @splice("Attention.mixed")
            def _(x, position, segment):
                x = x + position + segment
        """
        pattern = '[[layers]]\npattern = ["a"]\n[kinds.a]\ncall = { segment = "chunk" }\n'
        text = model(
            pattern, block=BLOCK, model=MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", ""), ids=ids
        )
        assert "def __call__(self, x, position, segment):" in definition(text, "Block")
        assert "def __call__(self, x, position=3, segment=4):" in definition(text, "Model")


class TestKindsForCheckpoints:
    """A kind that says `where` its layers are may be in no pattern; nothing of it is woven."""

    def test_left_out(self):
        plain = MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", "")
        pattern = '[[layers]]\npattern = ["a"]\n[kinds.a]\n'
        spare = f'{pattern}[kinds.b]\nwhere = "layer > 3"\nfragments = ["model/offset_"]\n'
        texts = dict(block=BLOCK, model=plain, offset_=OFFSET)
        assert model(spare, **texts) == model(pattern, **texts)


class TestRefused:
    def refusal(self, architecture: str, **texts: str) -> str:
        with pytest.raises(LoomError) as raised:
            model(architecture, **texts)
        return str(raised.value)

    def test_unknown_kind(self):
        error = self.refusal('[[layers]]\npattern = ["lokal"]\n[kinds.local]\n', block=BLOCK, model=MODEL)
        assert "unknown kind of layer 'lokal'" in error and "local" in error.split("\n")[1]

    def test_unused_kind(self):
        error = self.refusal('[[layers]]\npattern = ["a"]\n[kinds.a]\n[kinds.b]\n', block=BLOCK, model=MODEL)
        assert "no layer is of the kind 'b'" in error

    def test_two_periods(self):
        twice = '[[layers]]\npattern = ["a", "b"]\n[[layers]]\nname = "c"\npattern = ["b", "a"]\n[kinds.a]\n[kinds.b]\n'
        error = self.refusal(
            twice.replace("pattern", 'count = "2"\npattern'),
            block=BLOCK,
            period=PERIOD,
            model=MODEL.replace(", layers.sum(lambda layer: min(layer.window, 9))", ""),
        )
        assert "model/period writes out a period, and 2 groups of layers have one" in error

    def test_counts_are_asked_for(self):
        pattern = '[[layers]]\npattern = ["a"]\n[[layers]]\nname = "b"\npattern = ["a"]\ncount = "1"\n[kinds.a]\n'
        assert "one of several groups of layers has no count" in self.refusal(pattern, block=BLOCK, model=MODEL)

    @pytest.mark.parametrize(
        ("given", "line"),
        [('init = { window = "8", foo = "1" }', 13), ('init = { window = "8" }\ncall = { foo = "1" }', 14)],
    )
    def test_what_no_fragment_takes(self, given, line):
        pattern = f'[[layers]]\npattern = ["a", "b"]\n[kinds.a]\ninit = {{ window = "9" }}\n[kinds.b]\n{given}\n'
        error = self.refusal(pattern, block=BLOCK, window=WINDOW, period=PERIOD, model=MODEL)
        assert error.startswith(f"templates/architectures/toy.toml:{line}: layers of the kind 'b' are given 'foo'")

    @pytest.mark.parametrize(
        ("table", "reason"),
        [
            ("[[layers]]\n[kinds.a]\n", "layers[0].pattern is missing"),
            ('[[layers]]\npattern = ["a"]\nscale = 1\n[kinds.a]\n', "unknown key layers[0].scale"),
            ('[[layers]]\npattern = ["a"]\n[kinds.a]\nscale = 1\n', "unknown key kinds.a.scale"),
        ],
    )
    def test_what_cannot_be_read(self, table, reason):
        assert reason in self.refusal(table, block=BLOCK, model=MODEL)

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ("group.stack = ", "group.stack = group, ", "group cannot be read here"),
            ("group.count)", "group.size)", "group.size cannot be read here"),
            ("for group in layers.groups", "for group, _ in layers.groups", "layers.groups cannot be read here"),
            ("for group in layers.groups", "for group in layers.last", "layers.last cannot be read here"),
            ("layers.count", "layers.amount", "layers.amount cannot be read"),
            ("layers.count", "layers", "layers cannot be read here"),
            ("layers.count", "layers.count(1)", "layers.count cannot be read"),
            ("layers.count", "len(layers.groups)", "layers.groups cannot be read here"),
            ("layers.count", "layers.sum(1)", "layers.sum() takes a function of one argument"),
            ("layers.count", "layers.sum(lambda a, b: 1)", "layers.sum() takes a function of one argument"),
            ("layers.count", "layers.sum(lambda layer: layer)", "layer cannot be read here"),
            (
                "layers.count",
                "layers.sum(lambda layer: layer.depth)",
                "layer.depth is read here, and some kind of layer is made without 'depth'",
            ),
            ("def model(", "AMOUNT = layers.last\n\n    def model(", "layers cannot be read here"),
        ],
    )
    def test_words_that_cannot_be_read(self, old, new, reason):
        changed = MODEL.replace(old, new, 1)
        error = self.refusal(PATTERN, block=BLOCK, window=WINDOW, period=PERIOD, model=changed)
        assert changed != MODEL and reason in error and "fragments/model/model.py:" in error
