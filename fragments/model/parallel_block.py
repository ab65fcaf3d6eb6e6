"""Parallel residual block.

Source: Chowdhery et al. 2022, arXiv 2204.02311, section 2.
"""

from flax import nnx
from jax import Array

from generator.language import point, splice
from generator.language.roles import Attention, FeedForward, ModelConfig, Norm, shard


class Block(nnx.Module):
    """Adds attention and feed-forward of the same normed input to the residual stream."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        self.norm = Norm(config.width, config.norm_epsilon)
        self.attention = Attention(config, rngs)
        self.mlp = FeedForward(config, rngs)
        point("Block.parameters", config, rngs)

    def __call__(self, x: Array) -> Array:
        h = self.norm(x)
        attended = self.attention(h)
        point("Block.attended", x, h, attended)
        return shard(x + attended + self.mlp(h), "batch", "sequence", "residual")


@splice("hf.layer_tensors")
def _():
    with point("hf.parallel_norm"):
        yield "norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
