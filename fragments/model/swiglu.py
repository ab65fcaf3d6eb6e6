"""SwiGLU feed-forward.

Source: Shazeer 2020, arXiv 2002.05202.
"""

import jax
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice
from generator.language.roles import Linear, PositiveInt, shard


class ModelConfig:
    mlp_width: PositiveInt  # inner size of the feed-forward


class FeedForward(nnx.Module):
    """Computes down(activation(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        with point("FeedForward.sizes", config):
            D, F, std = config.width, config.mlp_width, config.init_std
        self.gate = Linear("BTD,DF->BTF", (D, F), ("embed", "mlp"), std, rngs)
        self.up = Linear("BTD,DF->BTF", (D, F), ("embed", "mlp"), std, rngs)
        self.down = Linear("BTF,FD->BTD", (F, D), ("mlp", "embed"), std, rngs)
        point("FeedForward.parameters", config, rngs, D, F)

    def __call__(self, x: Array) -> Array:
        gate, up = checkpoint_name(self.gate(x), "gate"), checkpoint_name(self.up(x), "up")  # [B, T, F]
        with point("FeedForward.activation", gate, up):
            h = jax.nn.silu(gate) * up
        return checkpoint_name(self.down(shard(h, "batch", "sequence", "mlp")), "down")


@splice("flops", before="dense_layers experts mtp")
def _(parameters, config):
    with point("flops.mlp", parameters, config):
        parameters += 3 * layers.count * config.width * config.mlp_width


@splice("hf.layer_tensors")
def _():
    with point("hf.mlp"):
        with point("hf.gate_up"):
            yield "mlp.gate.kernel", "model.layers.{}.mlp.gate_proj.weight", "d f -> f d"
            yield "mlp.up.kernel", "model.layers.{}.mlp.up_proj.weight", "d f -> f d"
        yield "mlp.down.kernel", "model.layers.{}.mlp.down_proj.weight", "f d -> d f"


@splice("hf.sizes")
def _():
    with point("hf.mlp_width"):
        yield "intermediate_size", "mlp_width"


@splice("hf.complete")
def _(hf):
    hf.setdefault("mlp_bias", False)


@splice("hf.structure")
def _():
    with point("hf.activation"):
        yield "hidden_act", "silu", "a feed-forward of that activation"
    with point("hf.mlp_bias"):
        yield "mlp_bias", False, "a feed-forward with biases"
