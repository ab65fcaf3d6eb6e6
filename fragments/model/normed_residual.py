"""A residual stream that is normed before a feed-forward, with factors of the stream and of what is added to it.

Source: MiniMax 2025, arXiv 2501.08313, section 2.4; Wang et al. 2022, arXiv 2203.00555, section 3.1.
"""

from generator.language import splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    mlp_kept: PositiveFloat = 1.0  # factor of the residual beside a feed-forward
    mlp_added: PositiveFloat = 1.0  # factor of what it adds


@splice("Block.parameters")
def _(self, config):
    self.mlp_kept, self.mlp_added = config.mlp_kept, config.mlp_added


@splice("Block.normed_mlp")
def _(self, x, h):
    h = self.mlp_norm(x)
    x = self.mlp_kept * h
    h = self.mlp(h)


@splice("Block.mlp")
def _(self, h):
    h = self.mlp_added * h


@splice("hf.sizes")
def _():
    yield "mlp_alpha_factor", "mlp_kept"
    yield "mlp_beta_factor", "mlp_added"
