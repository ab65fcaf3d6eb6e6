"""The threading operator through transformations of JAX, and a value that travels both ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from miniature import run, tidy, woven

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
        names = run("import jax\nimport jax.numpy as jnp\n" + woven(cached=CACHED, cache=CACHE))

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

    def test_a_variable_named_as_the_inputs_would_be(self):
        text = woven(
            cached=CACHED.replace("x = layer(x)\n", "x = layer(x)\n                x = x * inputs\n"), cache=CACHE
        )
        assert "def block(x, scanned):\n            layer, cache = scanned\n" in text


STEP = """
    import jax
    import jax.numpy as jnp
    from generator.language import point

    class Model:
        def __call__(self, x, weights):
            point("Model.weighted", x)
            return x * weights

    def loss(weights, model: Model, x):
        return jnp.sum(model(x, weights))

    def step(weights, batch):
        model = Model()
        value, gradient = jax.value_and_grad(lambda weights: loss(weights, model, batch["x"]))(weights)
        return value, gradient, loss(weights, model, batch["x"])
"""
MASK = """
    from generator.language import provide, splice

    @provide("step")
    def mask(batch):
        return batch["mask"]

    @splice("Model.weighted")
    def _(x, mask):
        x = x * mask
"""


class TestTransformations:
    """A call in a lambda that JAX transforms is a call like any other."""

    def test_woven(self):
        assert woven(step=STEP, mask=MASK).endswith(
            tidy("""
            def loss(weights, model: Model, x, mask: Array):
                return jnp.sum(model(x, weights, mask))


            def step(weights, batch):
                mask = batch["mask"]
                model = Model()
                value, gradient = jax.value_and_grad(lambda weights: loss(weights, model, batch["x"], mask))(weights)
                return value, gradient, loss(weights, model, batch["x"], mask)
            """)
        )

    def test_the_value_arrives(self):
        names = run("import jax\nimport jax.numpy as jnp\n" + woven(step=STEP, mask=MASK))
        batch = {"x": jnp.array([1.0, 2.0, 4.0]), "mask": jnp.array([1.0, 0.0, 1.0])}
        assert [float(value) for value in names["step"](2.0, batch)] == [10.0, 5.0, 10.0]
