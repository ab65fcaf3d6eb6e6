"""Experts chosen one after the other, each weighted against those whose logits are near its own.

Source: Liu et al. 2024, arXiv 2409.12136, section 2.2 (SparseMixer), as it computes without sampling.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    router_jitter: PositiveFloat = 0.01  # half of how far below the highest, relative to it, a logit is near


def choose_in_turn(logits: Array, active: int, jitter: float) -> tuple[Array, Array]:
    """Returns weights and chosen experts, both [B, T, A], for logits [B, T, E]."""
    weights, experts = [], []
    left = logits  # of experts that are not chosen yet
    for _ in range(active):
        expert = jnp.argmax(left, axis=-1, keepdims=True)  # [B, T, 1]
        point("choose_in_turn.expert", expert, experts)
        highest = jnp.take_along_axis(logits, expert, axis=-1)
        is_near = highest - logits <= 2 * jitter * jnp.maximum(jnp.abs(logits), highest)
        shares = jax.nn.softmax(jnp.where(is_near, left, -jnp.inf))
        weights.append(jnp.take_along_axis(shares, expert, axis=-1))
        experts.append(expert)
        left = jnp.where(jnp.arange(logits.shape[-1]) == expert, -jnp.inf, left)
    return jnp.concatenate(weights, axis=-1), jnp.concatenate(experts, axis=-1)


@splice("MixtureOfExperts.parameters")
def _(self, config):
    self.jitter = config.router_jitter


@splice("MixtureOfExperts.choice")
def _(self, logits, weights, chosen):
    weights, chosen = choose_in_turn(logits, self.active, self.jitter)  # [B, T, A]: the experts of each token


@splice("MixtureOfExperts.replayed", optional=True)
def _():
    pass


@splice("hf.sizes")
def _():
    yield "router_jitter_noise", "router_jitter"
