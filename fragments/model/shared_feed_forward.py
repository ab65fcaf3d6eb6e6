"""A feed-forward for every token, beside the routed experts, of a width of its own.

Source: Rajbhandari et al. 2022, arXiv 2201.05596, section 4.1.2 (residual experts).
"""

from generator.language import excludes, point, requires, splice
from generator.language.roles import FeedForward

requires("experts")
excludes("shared_expert")


@splice("MixtureOfExperts.parameters")
def _(self, config, rngs):
    self.shared = FeedForward(config, rngs)


@splice("MixtureOfExperts.result")
def _(self, x, y):
    with point("MixtureOfExperts.shared", self, x, y):
        y = y + self.shared(x)


@splice("hf.mlp")
def _():
    yield "mlp.shared.gate.kernel", "model.layers.{}.mlp.shared_expert.gate_proj.weight", "d f -> f d"
    yield "mlp.shared.up.kernel", "model.layers.{}.mlp.shared_expert.up_proj.weight", "d f -> f d"
    yield "mlp.shared.down.kernel", "model.layers.{}.mlp.shared_expert.down_proj.weight", "f d -> d f"
