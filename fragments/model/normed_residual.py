"""A residual stream that is normed before each sublayer, with factors of the stream and of what is added to it.

Source: MiniMax 2025, arXiv 2501.08313, section 2.4; Wang et al. 2022, arXiv 2203.00555, section 3.1.
"""

from generator.language import splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    attention_kept: PositiveFloat = 1.0  # factor of the residual beside attention
    attention_added: PositiveFloat = 1.0  # factor of what attention adds to it
    lightning_kept: PositiveFloat = 1.0  # the same for lightning attention
    lightning_added: PositiveFloat = 1.0
    mlp_kept: PositiveFloat = 1.0  # and for feed-forward
    mlp_added: PositiveFloat = 1.0


@splice("Block.parameters")
def _(self, config, kept, added):
    self.kept, self.added = kept, added
    self.mlp_kept, self.mlp_added = config.mlp_kept, config.mlp_added


@splice("Block.attention_input", "Block.lightning_input", optional=True)
def _(self, x, h):
    x = self.kept * h


@splice("Block.attention")
def _(self, h):
    h = self.added * h


@splice("Block.mlp_input")
def _(self, x, h):
    x = self.mlp_kept * h


@splice("Block.mlp")
def _(self, h):
    h = self.mlp_added * h


@splice("hf.sizes")
def _():
    yield "full_attn_alpha_factor", "attention_kept"
    yield "full_attn_beta_factor", "attention_added"
    yield "linear_attn_alpha_factor", "lightning_kept"
    yield "linear_attn_beta_factor", "lightning_added"
    yield "mlp_alpha_factor", "mlp_kept"
    yield "mlp_beta_factor", "mlp_added"
