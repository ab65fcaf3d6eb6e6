"""A learned factor for the output of each expert.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

import jax.numpy as jnp
from flax import nnx

from generator.language import splice


@splice("MixtureOfExperts.parameters")
def _(self, E):
    self.expert_scales = nnx.Param(jnp.ones(E), axes=(None,))


@splice("MixtureOfExperts.chosen")
def _(self, weights, chosen):
    weights = weights * self.expert_scales[...][chosen]


@splice("hf.layer_tensors")
def _():
    yield "mlp.expert_scales", "model.layers.{}.router.per_expert_scale", "e -> e"
