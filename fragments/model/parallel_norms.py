"""A norm for each of attention and feed-forward in a parallel residual block.

Source: Black et al. 2022, arXiv 2204.06745, section 2.1 (its released code).
"""

from generator.language import point, requires, splice
from generator.language.roles import Norm

requires("parallel_block")


@splice("Block.parameters")
def _(self, config):
    self.mlp_norm = Norm(config.width, config.norm_epsilon)


@splice("Block.attended")
def _(self, x, h):
    h = self.mlp_norm(x)


@splice("hf.layer_tensors")
def _():
    with point("hf.mlp_norm"):
        yield "mlp_norm.scale", "model.layers.{}.post_attention_layernorm.weight", "d -> d"
