"""A residual stream that is normed before attention, with factors of the stream and of what is added to it.

Source: MiniMax 2025, arXiv 2501.08313, section 2.4.
"""

from generator.language import requires, splice
from generator.language.roles import PositiveFloat

requires("normed_residual")


class ModelConfig:
    attention_kept: PositiveFloat = 1.0  # factor of the residual beside attention
    attention_added: PositiveFloat = 1.0  # factor of what it adds


@splice("Block.parameters")
def _(self, config):
    self.kept, self.added = config.attention_kept, config.attention_added


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.attention_norm(x)
    x = self.kept * h
    h = self.attention(h)


@splice("Block.attention")
def _(self, h):
    h = self.added * h


@splice("hf.sizes")
def _():
    yield "full_attn_alpha_factor", "attention_kept"
    yield "full_attn_beta_factor", "attention_added"
