"""Norms after attention and feed-forward as well as before.

Source: Gemma Team 2024, arXiv 2408.00118, section 2.
"""

from generator.language import splice
from generator.language.roles import Norm


@splice("Block.parameters")
def _(self, config):
    self.attention_post_norm = Norm(config.width, config.norm_epsilon)
    self.mlp_post_norm = Norm(config.width, config.norm_epsilon)


@splice("Block.attention")
def _(self, h):
    h = self.attention_post_norm(h)


@splice("Block.mlp")
def _(self, h):
    h = self.mlp_post_norm(h)


@splice("hf.mlp_norm")
def _():
    yield "attention_post_norm.scale", "model.layers.{}.post_attention_layernorm.weight", "d -> d"
    yield "mlp_norm.scale", "model.layers.{}.pre_feedforward_layernorm.weight", "d -> d"
    yield "mlp_post_norm.scale", "model.layers.{}.post_feedforward_layernorm.weight", "d -> d"
