"""Values that layers of a pattern take and give, and what is refused."""

from __future__ import annotations

import pytest
from miniature import definition, tidy
from test_layers import BLOCK, MODEL, PATTERN, PERIOD, PLAIN, WINDOW, model

from generator.errors import LoomError

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


def test_a_value_of_each_layer_is_one_of_a_tuple_in_a_period():
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
        text = model(pattern, block=BLOCK, period=PERIOD, model=PLAIN, angles=self.ANGLES)
        assert definition(text, "Period") == tidy(
            """
            class Period:
                def __init__(self, config, scale):
                    self.a = Block(config, scale)
                    self.b = Block(config, scale)

                def __call__(self, x, angles, slow_angles):
                    x = self.a(x, angles)
                    return self.b(x, angles=slow_angles)
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
        text = model(pattern, block=BLOCK, model=PLAIN, ids=ids)
        assert "def __call__(self, x, position, segment):" in definition(text, "Block")
        assert "def __call__(self, x, position=3, segment=4):" in definition(text, "Model")


class TestRefused:
    def refusal(self, architecture: str, **texts: str) -> str:
        with pytest.raises(LoomError) as raised:
            model(architecture, **texts)
        return str(raised.value)

    @pytest.mark.parametrize(
        ("architecture", "reason"),
        [
            (
                '[[layers]]\npattern = ["lokal"]\n[kinds.local]\n',
                "unknown kind of layer 'lokal'\n  Did you mean local?",
            ),
            ('[[layers]]\npattern = ["a"]\n[kinds.a]\n[kinds.b]\n', "no layer is of the kind 'b'"),
            (
                '[[layers]]\npattern = ["a"]\n[[layers]]\nname = "b"\npattern = ["a"]\ncount = "1"\n[kinds.a]\n',
                "one of several groups of layers has no count",
            ),
            ("[[layers]]\n[kinds.a]\n", "layers[0].pattern is missing"),
            ('[[layers]]\npattern = ["a"]\nscale = 1\n[kinds.a]\n', "unknown key layers[0].scale"),
            ('[[layers]]\npattern = ["a"]\n[kinds.a]\nscale = 1\n', "unknown key kinds.a.scale"),
        ],
    )
    def test_patterns(self, architecture, reason):
        assert reason in self.refusal(architecture, block=BLOCK, period=PERIOD, model=PLAIN)

    @pytest.mark.parametrize(
        ("given", "line"),
        [('init = { window = "8", foo = "1" }', 13), ('init = { window = "8" }\ncall = { foo = "1" }', 14)],
    )
    def test_what_no_fragment_takes(self, given, line):
        pattern = f'[[layers]]\npattern = ["a", "b"]\n[kinds.a]\ninit = {{ window = "9" }}\n[kinds.b]\n{given}\n'
        error = self.refusal(pattern, block=BLOCK, window=WINDOW, period=PERIOD, model=MODEL)
        assert error.startswith(f"templates/architectures/toy.toml:{line}: layers of the kind 'b' are given 'foo'")

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
