"""Sigmoids of the logits as weights of the chosen experts.

Source: Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence (its released code).
"""

import jax
import jax.numpy as jnp

from generator.language import splice
from generator.language.roles import replayed_choice


@splice("MixtureOfExperts.choice")
def _(self, logits, weights, chosen):
    chosen = jax.lax.top_k(logits, self.active)[1]  # [B, T, A]: the experts of each token
    weights = jax.nn.sigmoid(jnp.take_along_axis(logits, chosen, axis=-1))


@splice("MixtureOfExperts.replayed", optional=True)
def _(logits, weights, chosen, replay):
    chosen, weights = replayed_choice(replay, jax.nn.sigmoid(logits), chosen, weights)
