"""The threading operator over models: what goes in, what comes out, and what it computes under JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from miniature import run, tidy, woven

HEAD = "import jax\nimport jax.numpy as jnp\n"
DECODER = """
    import jax
    import jax.numpy as jnp
    from generator.language import point
    from generator.language.roles import attend

    class Attention:
        def __call__(self, x, mask):
            point("Attention.mask", x, mask)
            return attend(x, mask)

    class Block:
        def __init__(self):
            self.attention = Attention()

        def __call__(self, x):
            h = self.attention(x, jnp.ones((x.shape[0], x.shape[0]), bool))
            point("Block.routed", h)
            return x + h

    class Decoder:
        def __init__(self):
            self.layers = jnp.arange(2.0)

        def hidden(self, x):
            def block(x, scale):
                layer: Block = Block()
                x = layer(x) * (1 + scale)
                return x, None

            x, _ = jax.lax.scan(jax.checkpoint(block), x, self.layers)
            return x

        def __call__(self, tokens):
            return self.hidden(tokens.astype(float))

    def attend(x, mask):
        return jnp.where(mask, x[None], 0).sum(1)

    def loss(model: Decoder, batch):
        logits = model(batch["tokens"])
        total = jnp.sum(logits)
        point("loss.terms", total)
        return total
"""
PACKING = """
    from generator.language import provide, splice

    @provide("loss")
    def segment_ids(batch):
        return batch["segment_ids"]

    @splice("Attention.mask")
    def _(mask, segment_ids):
        mask = mask & (segment_ids[:, None] == segment_ids[None, :])
"""
PACKED = [  # from the batch over loss, model and scanned, rematerialised blocks to the mask
    ("(self, x, mask):", "(self, x, mask, segment_ids):"),
    ('point("Attention.mask", x, mask)', "mask = mask & (segment_ids[:, None] == segment_ids[None, :])"),
    ('            point("Block.routed", h)\n', ""),
    ("__call__(self, x):", "__call__(self, x, segment_ids):"),
    ("bool))", "bool), segment_ids)"),
    ("hidden(self, x):", "hidden(self, x, segment_ids):"),
    ("layer(x)", "layer(x, segment_ids)"),
    ("__call__(self, tokens):", "__call__(self, tokens, segment_ids):"),
    ("astype(float))", "astype(float), segment_ids)"),
    ('batch["tokens"])', 'batch["tokens"], batch["segment_ids"])'),
    ('        point("loss.terms", total)\n', ""),
]
BALANCE = """
    import jax.numpy as jnp
    from generator.language import emit, splice

    @splice("Block.routed")
    def _(h):
        router_loss = jnp.sum(h)
        emit(router_loss)

    @splice("loss.terms")
    def _(total, router_loss):
        total = total + jnp.sum(router_loss)
"""
BALANCED = [  # from the block over the scan, which stacks it over the layers, and the model to the loss
    ('            point("Attention.mask", x, mask)\n', ""),
    (
        'point("Block.routed", h)\n            return x + h',
        "router_loss = jnp.sum(h)\n            return x + h, router_loss",
    ),
    ("x = layer(x)", "x, router_loss = layer(x)"),
    ("return x, None", "return x, router_loss"),
    ("x, _ = jax", "x, router_loss = jax"),
    ("self.layers)\n            return x", "self.layers)\n            return x, router_loss"),
    ("logits = model", "logits, router_loss = model"),
    ('point("loss.terms", total)', "total = total + jnp.sum(router_loss)"),
]


def edited(text: str, edits: list[tuple[str, str]]) -> str:
    """The text of DECODER from its first class on, with these changes, each of which is in one place."""
    text = "    class" + text.split("    class", 1)[1]
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return tidy(text)


class TestDecoder:
    """Values inward and outward, with no line about them in a host."""

    def test_woven(self):
        assert woven(decoder=DECODER, packing=PACKING) == edited(DECODER, PACKED)
        # `x = layer(x) * (1 + scale)` is no call alone: the balance has a name for it
        decoder = DECODER.replace("x = layer(x) * (1 + scale)", "x = layer(x)\n                x = x * (1 + scale)")
        assert woven(decoder=decoder, balance=BALANCE) == edited(decoder, BALANCED)

    def test_a_function_with_the_parameters_of_a_scan_is_a_scan(self):
        own = "\n    def over(f: Callable, init: jax.Array, xs: Any):\n        return jax.lax.scan(f, init, xs)\n"
        decoder = DECODER.replace("x = layer(x) * (1 + scale)", "x = layer(x)").replace("_ = jax.lax.scan", "_ = over")
        text = woven(decoder=decoder + own, balance=BALANCE)
        assert "x, router_loss = over(jax.checkpoint(block), x, self.layers)" in text
        assert "def over(f: Callable, init: jax.Array, xs: Any):\n    return jax.lax.scan(f, init, xs)" in text

    def test_the_values_arrive(self):
        names = run(HEAD + woven(decoder=DECODER, packing=PACKING))
        tokens = jnp.array([1, 2, 4, 8])
        # x + sum of its segment, times 1, then the same times 2: each segment of n numbers multiplies its sum by 1 + n
        for segments, expected in ([0, 0, 0, 0], 15 * 5 * 5 * 2), ([0, 0, 1, 1], 15 * 3 * 3 * 2):
            batch = {"tokens": tokens, "segment_ids": jnp.array(segments)}
            assert names["loss"](names["Decoder"](), batch) == expected
            assert jax.jit(lambda batch: names["loss"](names["Decoder"](), batch))(batch) == expected
        decoder = DECODER.replace("x = layer(x) * (1 + scale)", "x = layer(x)\n                x = x * (1 + scale)")
        names = run(HEAD + woven(decoder=decoder, balance=BALANCE))
        # h is 1 and 2 for x of 1 and 2; the last x is 2 * 2 * 2
        assert names["loss"](names["Decoder"](), {"tokens": jnp.array([1])}) == 8 + (1 + 2)


def test_a_call_in_a_lambda_that_jax_transforms():
    step = """
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
    mask = """
        @provide("step")
        def mask(batch):
            return batch["mask"]

        @splice("Model.weighted")
        def _(x, mask):
            x = x * mask
    """
    text = woven(step=step, mask=mask)
    assert "    return jnp.sum(model(x, weights, mask))\n" in text and '    mask = batch["mask"]\n' in text
    assert '(lambda weights: loss(weights, model, batch["x"], mask))(weights)\n' in text
    batch = {"x": jnp.array([1.0, 2.0, 4.0]), "mask": jnp.array([1.0, 0.0, 1.0])}
    assert [float(value) for value in run(HEAD + text)["step"](2.0, batch)] == [10.0, 5.0, 10.0]
