"""Attention scores divided by the root of a setting, in place of the head size.

Source: Gemma Team 2024, arXiv 2408.00118 (its released code).
"""

from generator.language import splice
from generator.language.roles import PositiveInt


class ModelConfig:
    query_scalar: PositiveInt  # its root divides the scores


@splice("Attention.parameters")
def _(self, config):
    # attend divides by the root of the head size
    self.query_scale = (config.head_size / config.query_scalar) ** 0.5


@splice("hf.sizes")
def _():
    yield "query_pre_attn_scalar", "query_scalar"
