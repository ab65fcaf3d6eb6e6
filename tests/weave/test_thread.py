"""The threading operator, by what goes in and what comes out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from miniature import run, tidy, woven

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
            return x + h

    class Decoder:
        def __init__(self):
            self.layers = jnp.arange(2.0)

        def __call__(self, tokens):
            x = tokens.astype(float)

            def block(x, scale):
                layer: Block = Block()
                x = layer(x) * (1 + scale)
                return x, None

            x, _ = jax.lax.scan(jax.checkpoint(block), x, self.layers)
            return x

    def attend(x, mask):
        return jnp.where(mask, x[None], 0).sum(1)

    def loss(model: Decoder, batch):
        logits = model(batch["tokens"])
        return jnp.sum(logits)
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


class TestSegmentIds:
    """batch -> loss -> model -> scanned, rematerialised blocks -> attention mask, with no line in a host."""

    AFTER = """
        class Attention:
            def __call__(self, x, mask, segment_ids):
                mask = mask & (segment_ids[:, None] == segment_ids[None, :])
                return attend(x, mask)


        class Block:
            def __init__(self):
                self.attention = Attention()

            def __call__(self, x, segment_ids):
                h = self.attention(x, jnp.ones((x.shape[0], x.shape[0]), bool), segment_ids)
                return x + h


        class Decoder:
            def __init__(self):
                self.layers = jnp.arange(2.0)

            def __call__(self, tokens, segment_ids):
                x = tokens.astype(float)

                def block(x, scale):
                    layer: Block = Block()
                    x = layer(x, segment_ids) * (1 + scale)
                    return x, None

                x, _ = jax.lax.scan(jax.checkpoint(block), x, self.layers)
                return x


        def attend(x, mask):
            return jnp.where(mask, x[None], 0).sum(1)


        def loss(model: Decoder, batch):
            logits = model(batch["tokens"], batch["segment_ids"])
            return jnp.sum(logits)
    """

    def test_woven(self):
        assert woven(decoder=DECODER, packing=PACKING) == tidy(self.AFTER)

    def test_hosts_do_not_mention_it(self):
        assert "segment" not in DECODER

    def test_the_value_arrives(self):
        names = run("import jax\nimport jax.numpy as jnp\n" + woven(decoder=DECODER, packing=PACKING))
        batch = {"tokens": jnp.array([1, 2, 4, 8])}
        one = names["loss"](names["Decoder"](), batch | {"segment_ids": jnp.array([0, 0, 0, 0])})
        two = names["loss"](names["Decoder"](), batch | {"segment_ids": jnp.array([0, 0, 1, 1])})
        # x + sum of its segment, times 1, then the same times 2: each segment of n numbers multiplies its sum by 1 + n
        assert one == 15 * 5 * 5 * 2
        assert two == 15 * 3 * 3 * 2

    def test_under_jit_and_grad(self):
        names = run("import jax\nimport jax.numpy as jnp\n" + woven(decoder=DECODER, packing=PACKING))
        batch = {"tokens": jnp.array([1, 2, 4, 8]), "segment_ids": jnp.array([0, 0, 1, 1])}
        assert jax.jit(lambda batch: names["loss"](names["Decoder"](), batch))(batch) == 270


EXPERTS = """
    import jax
    import jax.numpy as jnp
    from generator.language import point

    class Router:
        def __call__(self, x):
            return x * 2

    class Block:
        def __init__(self):
            self.mlp = Router()

        def __call__(self, x, scale):
            h = self.mlp(x)
            point("Block.routed", h)
            return x + h * scale

    class Decoder:
        def __init__(self):
            self.block, self.layers = None, jnp.array([1.0, 2.0, 3.0])

        def hidden(self, x):
            def block(x, scale):
                layer: Block = Block()
                x = layer(x, scale)
                return x, None

            x, _ = jax.lax.scan(jax.checkpoint(block), x, self.layers)
            return x

        def __call__(self, tokens):
            return self.hidden(tokens * 1.0)

    def loss(model: Decoder, batch):
        logits = model(batch)
        total = jnp.sum(logits)
        point("loss.terms", total)
        return total
"""
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


class TestAuxiliaryLoss:
    """A value carried outward: block -> scan, which stacks it over the layers -> model -> loss."""

    AFTER = """
        class Router:
            def __call__(self, x):
                return x * 2


        class Block:
            def __init__(self):
                self.mlp = Router()

            def __call__(self, x, scale):
                h = self.mlp(x)
                router_loss = jnp.sum(h)
                return x + h * scale, router_loss


        class Decoder:
            def __init__(self):
                self.block, self.layers = None, jnp.array([1.0, 2.0, 3.0])

            def hidden(self, x):
                def block(x, scale):
                    layer: Block = Block()
                    x, router_loss = layer(x, scale)
                    return x, router_loss

                x, router_loss = jax.lax.scan(jax.checkpoint(block), x, self.layers)
                return x, router_loss

            def __call__(self, tokens):
                return self.hidden(tokens * 1.0)


        def loss(model: Decoder, batch):
            logits, router_loss = model(batch)
            total = jnp.sum(logits)
            total = total + jnp.sum(router_loss)
            return total
    """

    def test_woven(self):
        assert woven(experts=EXPERTS, balance=BALANCE) == tidy(self.AFTER)

    def test_the_value_arrives(self):
        names = run("import jax\nimport jax.numpy as jnp\n" + woven(experts=EXPERTS, balance=BALANCE))
        # h is 2, 6 and 30 for x of 1, 3 and 15; the last x is 15 + 30 * 3
        assert names["loss"](names["Decoder"](), jnp.array([1.0])) == 105 + (2 + 6 + 30)

    def test_without_the_fragment_nothing_changes(self):
        assert woven(experts=EXPERTS) == tidy(EXPERTS.split("point\n")[1]).replace(
            '    total = jnp.sum(logits)\n    point("loss.terms", total)\n    return total\n',
            "    return jnp.sum(logits)\n",
        ).replace('        point("Block.routed", h)\n', "")
