"""A feed-forward as the one sublayer of a block.

Source: NVIDIA 2025, arXiv 2504.03624, section 2.1.
"""

from generator.language import layers, point, requires, splice
from generator.language.roles import FeedForward, Norm

requires("single_block")


@splice("Block.mixer")
def _(self, config, rngs):
    self.mlp_norm = Norm(config.width, config.norm_epsilon)
    with point("Block.feed_forward", config, rngs):
        self.mlp = FeedForward(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.mlp_norm(x)
    h = self.mlp(h)


@splice("hf.layer_tensors")
def _():
    yield "mlp_norm.scale", "model.layers.{}.post_attention_layernorm.weight", "d -> d"


@splice("hf.structure")
def _(config):
    yield "mlp_layers", list(layers.numbers), "layers of that pattern"
