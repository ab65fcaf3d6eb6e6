"""Load of each expert, as a metric."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, splice
from generator.language.roles import ModelConfig


def sum_tokens(x: Array, segment_ids: Array | None) -> Array:
    """Sums x [B, T, E] over tokens, without padding, in fp32: [E]."""
    if segment_ids is not None:
        x = jnp.where((segment_ids > 0)[..., None], x, 0)
    return jnp.sum(x, axis=(0, 1), dtype=jnp.float32)


def join_layers(values: Array | tuple) -> Array:
    """Concatenates the values [E] of all layers, stacked by scans over layers and periods, to [L, E]."""
    return jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in jax.tree.leaves(values)])


def routed_tokens(load: Array, config: ModelConfig) -> Array:
    """Returns the number of tokens behind a load [L, E], over all layers; at least 1."""
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
    # load of the busiest expert, as a multiple of the mean
    metrics["train/expert_load"] = sums["expert_load"].max() / sums["expert_load"].mean()
