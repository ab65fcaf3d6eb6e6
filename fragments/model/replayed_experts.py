"""Routing replay: training uses the experts that the engine chose, in place of those of its own router.

Their weights are those of the router's own scores, so that it has a gradient.

Source: Ma et al. 2025, arXiv 2510.11370 (rollout routing replay).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import emit, layers, point, provide, requires, setting, splice
from generator.language.roles import ModelConfig

requires("experts")


def layers_with_experts(config: ModelConfig) -> int:
    return layers.scanned


def by_stack(values: Array, config: ModelConfig) -> Array | tuple:
    """Returns values [L, ...] of the layers with experts in the structure that scans over layers take apart."""
    if setting("one_stack"):
        return values
    else:
        counts, structure = jax.tree.flatten(layers.stacked(lambda group: group.count))
        return jax.tree.unflatten(structure, jnp.split(values, np.cumsum(counts)[:-1]))


def numbers_dtype(config: ModelConfig) -> np.dtype:
    """Returns the smallest type of the numbers of experts, and of -1."""
    return np.min_scalar_type(-config.experts)


def routes_by_token(routes: Array | tuple, config: ModelConfig) -> Array:
    """Returns the experts of each token [B, T, L, A], from those that each layer chose."""
    stacked = jnp.concatenate([x.reshape(-1, *x.shape[-3:]) for x in jax.tree.leaves(routes)])  # [L, B, T, A]
    return jnp.moveaxis(stacked, 0, 2).astype(numbers_dtype(config))


def replayed_experts(batch: dict[str, Array], config: ModelConfig) -> Array | tuple | None:
    """Returns the experts [B, T, A] that each layer is to use, negative where it chooses; None if it always does."""
    if "experts" not in batch:
        return None
    return by_stack(jnp.moveaxis(batch["experts"], 2, 0), config)


@provide("loss")
def replay(batch, config) -> Array | tuple:
    return replayed_experts(batch, config)


@provide("Decoder.hidden", optional=True, per_layer=True)
def replay() -> Array | tuple:
    return None


def replayed_choice(replay: Array | None, scores: Array, chosen: Array, weights: Array) -> tuple[Array, Array]:
    """Returns the experts to use, in place of those that the router chose, and their weights: [B, T, A] each."""
    if replay is None:
        return chosen, weights
    chosen = jnp.where(replay < 0, chosen, replay)
    return chosen, jnp.take_along_axis(scores, chosen, axis=-1)


@splice("MixtureOfExperts.routed")
def _(logits, scores, weights, chosen, replay):
    with point("MixtureOfExperts.replayed", logits, scores, weights, chosen, replay):
        chosen, weights = replayed_choice(replay, scores, chosen, weights)


@splice("choose_in_turn.expert", optional=True)
def _(expert, experts, replay):
    if replay is not None:
        engines_choice = replay[..., len(experts), None]  # [B, T, 1]
        expert = jnp.where(engines_choice < 0, expert, engines_choice)


@splice("MixtureOfExperts.chosen")
def _(chosen):
    routes = chosen
    emit(routes)
