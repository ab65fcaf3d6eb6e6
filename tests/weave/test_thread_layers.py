"""Values of each layer, through scans and transformations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from miniature import run, tidy, woven
from test_thread import HEAD

CACHED = """
    import jax
    import jax.numpy as jnp
    from generator.language import point

    class Attention:
        def __call__(self, x):
            with point("Attention.attend", x):
                context = x * 2
            return context

    class Block:
        attention: Attention

        def __call__(self, x):
            h = self.attention(x)
            return x + h

    class Decoder:
        layers: Block

        def __call__(self, x):
            def block(x, layer: Block):
                x = layer(x)
                return x, None

            x, _ = jax.lax.scan(block, x, self.layers)
            return x

    def predict(model: Decoder, x):
        return model(x)
"""
CACHE = """
    from generator.language import emit, proceed, provide, receive, splice

    @provide("Decoder.__call__", optional=True, per_layer=True)
    def cache() -> float:
        return None

    @splice("Attention.attend")
    def _(x, context, cache):
        if cache is None:
            proceed()
        else:
            cache = cache + x
            context = cache * 2
        emit(cache)

    def decode(model: Decoder, x, cache):
        y = model(x, cache=cache)
        receive(cache)
        return y, cache
"""


class TestPerLayerCache:
    """Inward and outward: a scan over layers takes it apart on the way in and stacks it on the way out."""

    AFTER = """
        class Attention:
            def __call__(self, x, cache):
                if cache is None:
                    context = x * 2
                else:
                    cache = cache + x
                    context = cache * 2
                return context, cache


        class Block:
            attention: Attention

            def __call__(self, x, cache):
                h, cache = self.attention(x, cache)
                return x + h, cache


        class Decoder:
            layers: Block

            def __call__(self, x, cache=None):
                def block(x, inputs):
                    layer, cache = inputs
                    x, cache = layer(x, cache)
                    return x, cache

                x, cache = jax.lax.scan(block, x, (self.layers, cache))
                return x, cache


        def predict(model: Decoder, x):
            return model(x)[0]


        def decode(model: Decoder, x, cache):
            y, cache = model(x, cache=cache)
            return y, cache
    """

    def test_woven(self):
        assert woven(cached=CACHED, cache=CACHE) == tidy(self.AFTER)

    def test_the_value_arrives(self):
        names = run(HEAD + woven(cached=CACHED, cache=CACHE))

        @jax.tree_util.register_pytree_node_class
        class Layers(names["Block"]):  # two layers of nothing but a place in the scan
            attention = names["Attention"]()

            def tree_flatten(self):
                return (jnp.zeros(2),), None

            @classmethod
            def tree_unflatten(cls, _, children):
                return cls()

        model = names["Decoder"]()
        model.layers = Layers()
        assert names["predict"](model, 1.0) == 9.0
        y, cache = names["decode"](model, 1.0, jnp.array([10.0, 20.0]))
        assert cache.tolist() == [11.0, 43.0]  # 10 + 1; then x is 1 + 2 * 11
        assert y == 23 + 2 * 43

    @pytest.mark.parametrize(
        ("used", "name"), [("inputs", "scanned"), ("inputs + scanned + layer_inputs", "layer_inputs_2")]
    )
    def test_a_variable_named_as_the_inputs_would_be(self, used, name):
        host = CACHED.replace("x = layer(x)\n", f"x = layer(x)\n                x = x * ({used})\n")
        assert f"def block(x, {name}):\n            layer, cache = {name}\n" in woven(cached=host, cache=CACHE)
