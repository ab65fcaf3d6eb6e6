"""Pre-norm residual block.

Source: Xiong et al. 2020, arXiv 2002.04745.
"""

from flax import nnx
from jax import Array

from generator.language import point, splice
from generator.language.roles import Attention, FeedForward, ModelConfig, Norm, shard


class Block(nnx.Module):
    """Adds two sublayers to the residual stream, one after the other; each takes a normed input."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        with point("Block.mixer", config, rngs):
            self.attention_norm = Norm(config.width, config.norm_epsilon)
            self.attention = Attention(config, rngs)
        with point("Block.mlp_norm"):
            self.mlp_norm = Norm(config.width, config.norm_epsilon)
        with point("Block.feed_forward", config, rngs):
            self.mlp = FeedForward(config, rngs)
        point("Block.parameters", config, rngs)

    def __call__(self, x: Array) -> Array:
        with point("Block.normed_attention", x):
            h = self.attention_norm(x)
            h = self.attention(h)
        point("Block.attention", h)
        x = shard(x + h, "batch", "sequence", "residual")
        with point("Block.normed_mlp", x):
            h = self.mlp_norm(x)
            h = self.mlp(h)
        point("Block.mlp", x, h)
        return shard(x + h, "batch", "sequence", "residual")


@splice("hf.layer_tensors")
def _():
    with point("hf.attention_norm"):
        yield "attention_norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
    with point("hf.mlp_norm"):
        yield "mlp_norm.scale", "model.layers.{}.post_attention_layernorm.weight", "d -> d"
