"""Weights of the chosen experts multiplied by a constant.

Source: DeepSeek-AI 2024, arXiv 2412.19437 (its released code).
"""

from generator.language import splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    expert_scale: PositiveFloat  # factor of the weights of the chosen experts


@splice("MixtureOfExperts.parameters")
def _(self, config):
    self.scale = config.expert_scale


@splice("MixtureOfExperts.weights", after="normalised_top_k")
def _(self, weights):
    weights = self.scale * weights


@splice("hf.sizes")
def _():
    yield "routed_scaling_factor", "expert_scale"
