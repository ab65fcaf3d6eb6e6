"""Pre-norm residual block with one sublayer.

Source: Gu and Dao 2023, arXiv 2312.00752, section 3.4.
"""

from flax import nnx
from jax import Array

from generator.language import point
from generator.language.roles import Attention, ModelConfig, Norm, shard


class Block(nnx.Module):
    """Adds a sublayer of a normed input to the residual stream."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        with point("Block.mixer", config, rngs):
            self.attention_norm = Norm(config.width, config.norm_epsilon)
            self.attention = Attention(config, rngs)
        point("Block.parameters", config, rngs)

    def __call__(self, x: Array) -> Array:
        with point("Block.normed_attention", x):
            h = self.attention_norm(x)
            h = self.attention(h)
        point("Block.attention", h)
        return shard(x + h, "batch", "sequence", "residual")
