"""A residual stream that is normed before lightning attention, with factors of the stream and of what is added to it.

Source: MiniMax 2025, arXiv 2501.08313, section 2.4.
"""

from generator.language import proceed, requires, splice
from generator.language.roles import PositiveFloat

requires("normed_residual")


class ModelConfig:
    lightning_kept: PositiveFloat = 1.0  # factor of the residual beside lightning attention
    lightning_added: PositiveFloat = 1.0  # factor of what it adds


@splice("Block.parameters")
def _(self, config):
    self.kept, self.added = config.lightning_kept, config.lightning_added


@splice("Block.lightning_input")
def _(self, x, h):
    proceed()
    x = self.kept * h


@splice("Block.attention")
def _(self, h):
    h = self.added * h


@splice("hf.sizes")
def _():
    yield "linear_attn_alpha_factor", "lightning_kept"
    yield "linear_attn_beta_factor", "lightning_added"
