"""Feed-forward with a GELU, approximated by tanh.

Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
"""

import jax
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice
from generator.language.roles import Linear, PositiveInt, shard


class ModelConfig:
    mlp_width: PositiveInt  # inner size of the feed-forward


@splice("hf.sizes")
def _():
    yield "intermediate_size", "mlp_width"


class FeedForward(nnx.Module):
    """Computes down(activation(up(x)))."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, F = config.width, config.mlp_width
        self.up = Linear("BTD,DF->BTF", (D, F), ("embed", "mlp"), config.init_std, rngs)
        self.down = Linear("BTF,FD->BTD", (F, D), ("mlp", "embed"), config.init_std, rngs)
        point("FeedForward.parameters", config, rngs, D, F)

    def __call__(self, x: Array) -> Array:
        up = checkpoint_name(self.up(x), "up")  # [B, T, F]
        with point("FeedForward.activation", up):
            h = jax.nn.gelu(up)
        y = self.down(shard(h, "batch", "sequence", "mlp"))  # [B, T, D]
        point("FeedForward.output", y)
        return checkpoint_name(y, "down")


@splice("flops")
def _(parameters, config):
    parameters += 2 * layers.count * config.width * config.mlp_width


@splice("hf.layer_tensors")
def _():
    with point("hf.mlp"):
        yield "mlp.up.kernel", "model.layers.{}.mlp.up_proj.weight", "d f -> f d"
        yield "mlp.down.kernel", "model.layers.{}.mlp.down_proj.weight", "f d -> d f"
