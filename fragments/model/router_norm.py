"""A norm of the router's input.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

import jax.numpy as jnp

from generator.language import splice
from generator.language.roles import Norm


@splice("MixtureOfExperts.parameters")
def _(self, config, D):
    self.router_norm = Norm(D, config.norm_epsilon)


@splice("MixtureOfExperts.logits")
def _(self, x, logits):
    logits = self.router(self.router_norm(x.astype(jnp.float32)) * x.shape[-1] ** -0.5)  # [B, T, E]


@splice("hf.layer_tensors")
def _():
    yield "mlp.router_norm.scale", "model.layers.{}.router.scale", "d -> d"
