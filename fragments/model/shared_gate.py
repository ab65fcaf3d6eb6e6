"""A gate on the shared experts: a sigmoid of the token, one number for all of their output.

Source: Yang et al. 2024, arXiv 2407.10671, section 2.2.2 (its released code).
"""

import jax

from generator.language import layers, requires, splice
from generator.language.roles import Linear

requires("shared_expert or shared_feed_forward")


@splice("MixtureOfExperts.parameters")
def _(self, config, rngs, D):
    self.shared_gate = Linear("BTD,DG->BTG", (D, 1), ("embed", None), config.init_std, rngs)


@splice("MixtureOfExperts.shared")
def _(self, x, y):
    y = y + jax.nn.sigmoid(self.shared_gate(x)) * self.shared(x)


@splice("flops", after="swiglu dense_layers", before="experts mtp")
def _(parameters, config):
    parameters += layers.count * config.width


@splice("hf.layer_tensors")
def _():
    yield "mlp.shared_gate.kernel", "model.layers.{}.mlp.shared_expert_gate.weight", "d g -> g d"
