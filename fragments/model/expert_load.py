"""How many tokens each expert gets, as a metric."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, splice
from generator.language.roles import Config


def sum_tokens(x: Array, segment_ids: Array | None) -> Array:
    """The sum of x [B, T, E] over tokens, padding left out, in fp32: [E]."""
    if segment_ids is not None:
        x = jnp.where((segment_ids > 0)[..., None], x, 0)
    return jnp.sum(x, axis=(0, 1), dtype=jnp.float32)


def join_layers(values: Array | tuple) -> Array:
    """What all layers gave, an array [E] of each stacked in scans over layers and periods: [L, E]."""
    return jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in jax.tree.leaves(values)])


def routed_tokens(load: Array, config: Config) -> Array:
    """The tokens that made up this load [L, E], in all layers together; at least 1."""
    return jnp.maximum(load.sum() / config.experts_per_token, 1)


@splice("MixtureOfExperts.chosen")
def _(scores, chosen, segment_ids):
    is_chosen = jnp.any(chosen[..., None] == jnp.arange(scores.shape[-1]), axis=-2)  # [B, T, E]
    expert_load = sum_tokens(is_chosen, segment_ids)  # [E]
    emit(expert_load)


@splice("loss.terms")
def _(sums, expert_load):
    sums["expert_load"] = join_layers(expert_load)  # tokens of each expert, [L, E]


@splice("train_step.metrics")
def _(metrics, sums):
    # of the expert with the most tokens, in multiples of the mean
    metrics["train/expert_load"] = sums["expert_load"].max() / sums["expert_load"].mean()
