"""Shared experts: a feed-forward for every token, beside the routed experts.

Source: Dai et al. 2024, arXiv 2401.06066, section 3.2.
"""

from generator.language import layers, point, requires, splice
from generator.language.roles import FeedForward, PositiveInt

requires("experts", "feed_forward_width")


class ModelConfig:
    shared_experts: PositiveInt = 1  # experts for every token, as one feed-forward


@splice("MixtureOfExperts.parameters")
def _(self, config, rngs):
    self.shared = FeedForward(config, rngs, width=config.shared_experts * config.expert_width)


@splice("MixtureOfExperts.result")
def _(self, x, y):
    with point("MixtureOfExperts.shared", self, x, y):
        y = y + self.shared(x)


@splice("flops.mlp")
def _(parameters, config):
    shared = 3 * config.shared_experts * config.expert_width
    parameters += layers.count * config.width * shared


@splice("hf.mlp")
def _():
    yield "mlp.shared.gate.kernel", "model.layers.{}.mlp.shared_experts.gate_proj.weight", "d f -> f d"
    yield "mlp.shared.up.kernel", "model.layers.{}.mlp.shared_experts.up_proj.weight", "d f -> f d"
    yield "mlp.shared.down.kernel", "model.layers.{}.mlp.shared_experts.down_proj.weight", "f d -> d f"


@splice("hf.mlp_width")
def _():
    with point("hf.shared_experts"):
        yield "n_shared_experts", "shared_experts"
