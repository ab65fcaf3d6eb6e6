"""Dropless mixture of experts: token-expert pairs are sorted by expert, and each expert takes all of its own.

Source: Gale et al. 2022, arXiv 2211.15841, with grouped products.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, provide, requires, setting, splice, threaded
from generator.language.roles import Experts, count_pairs, gather

requires("experts")


def dispatch(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """Computes `apply_experts` on one device's tokens: a partial sum over the inner width, [1, B, T, D]."""
    B, T, D = x.shape
    with point("dispatch.order", chosen, B, D, T):
        pairs = jnp.argsort(chosen, axis=None)  # pairs of a token and an expert, sorted by expert
    with point("dispatch.rows", x, weights, pairs, D, B, T):
        rows = x.reshape(-1, D)[pairs // weights.shape[-1]]  # [B T A, D]
    with point("dispatch.experts", experts, rows, B, D, T):
        y = experts(rows)
    with point("dispatch.back", y, pairs, B, T, D):
        y = y[jnp.argsort(pairs)].reshape(B, T, -1, D)  # back to the order of tokens
    with point("dispatch.sum", y, B, D, T):
        total = jnp.einsum("BTAD,BTA->BTD", y, weights.astype(x.dtype))[None]
    return total


def gather_and_dispatch(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """Gathers the experts from all devices and dispatches to them."""
    return dispatch(gather(experts, ("expert", "expert_embed"), x.dtype), x, weights, chosen)


@splice("apply_experts.spread", optional=True)
def _(specs, summands, spread):
    with point("dropless.spread", specs, summands):
        spread = jax.shard_map(gather_and_dispatch, in_specs=specs, out_specs=summands)


@splice("ExpertLinear.product", optional=True)
def _(x, kernel, y, sizes):
    with point("ExpertLinear.grouped", x, kernel, sizes):
        y = jax.lax.ragged_dot(x, kernel, sizes)  # x [R, I]: the first sizes[0] rows are for expert 0, etc.


@provide("dispatch")
def sizes(experts, chosen) -> Array:
    return (
        jnp.bincount(chosen.ravel(), length=experts.number)
        if setting("scatters_integers")
        else count_pairs(chosen, experts.number)
    )  # [E], number of pairs of each expert


def of_rows(values: Array, x: Array, sizes: Array = threaded()) -> Array:
    """Returns the entry of values [E, ...] of each row's expert, 0 for rows of x without one: [R, ...]."""
    sizes = jnp.append(sizes, len(x) - sizes.sum())
    with point("of_rows.expert", x, sizes):
        expert = jnp.repeat(jnp.arange(len(sizes)), sizes, total_repeat_length=len(x))
    return values.at[expert].get(mode="fill", fill_value=0)
