"""Norms after attention and feed-forward, in place of those before.

Source: Team OLMo 2024, arXiv 2501.00656, section 3.2; Liu et al. 2021, arXiv 2111.09883, section 3.2.
"""

from generator.language import splice


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.attention(x)
    h = self.attention_norm(h)


@splice("Block.normed_mlp")
def _(self, x, h):
    h = self.mlp(x)
    h = self.mlp_norm(h)


@splice("hf.attention_norm")
def _():
    yield "attention_norm.scale", "model.layers.{}.post_attention_layernorm.weight", "d -> d"


@splice("hf.mlp_norm")
def _():
    yield "mlp_norm.scale", "model.layers.{}.post_feedforward_layernorm.weight", "d -> d"
