"""Routing to experts by comparisons and sums, for compilers that sort badly and add no integers at indices.

Positions are summed in fp32, which is exact for the up to 2^24 pairs of a device.
"""

import jax.numpy as jnp
from jax import Array

from generator.language import excludes, splice

excludes("expert_exchange", "expert_capacity")  # which branch on data, or sort


def count_pairs(chosen: Array, experts: int) -> Array:
    """Counts the pairs of each expert in `chosen`, the expert of each pair: [E]."""
    return jnp.sum(chosen.reshape(-1, 1) == jnp.arange(experts), axis=0)


def sorted_places(chosen: Array, sizes: Array) -> Array:
    """Returns the place that each pair of `chosen` has when they are sorted by expert, of sizes [E]: [B T A]."""
    is_own = (chosen.reshape(-1, 1) == jnp.arange(len(sizes))).astype(jnp.float32)  # [B T A, E]
    before = jnp.cumsum(is_own, axis=0) - is_own + jnp.cumsum(sizes) - sizes  # of its expert, and of those before
    return jnp.sum(is_own * before, axis=1).astype(jnp.int32)


def group_of(rows: Array, ends: Array) -> Array:
    """Returns the group of each of rows [R], where group g has the rows from ends[g - 1] to ends[g] of ends [E]."""
    return jnp.sum(rows[:, None] >= ends, axis=1)


@splice("dispatch.order", optional=True)
def _(chosen, sizes, pairs):
    places = sorted_places(chosen, sizes)
    order = jnp.zeros(len(places)).at[places].set(jnp.arange(len(places), dtype=jnp.float32), unique_indices=True)
    pairs = order.astype(jnp.int32)  # pairs of a token and an expert, sorted by expert


@splice("dispatch.back", optional=True)
def _(y, B, T, D, places):
    y = y.at[places].get(unique_indices=True).reshape(B, T, -1, D)  # back to the order of tokens


@splice("blocks_product.group", optional=True)
def _(ends, N, group):
    group = group_of(jnp.arange(N), ends)  # [N]


@splice("blocks_product.slots", optional=True)
def _(padding, sizes, R, slots):
    slots = jnp.arange(R) + padding.at[group_of(jnp.arange(R), jnp.cumsum(sizes))].get(mode="clip")


@splice("of_rows.expert", optional=True)
def _(x, sizes, expert):
    expert = group_of(jnp.arange(len(x)), jnp.cumsum(sizes))
