"""Key and value cache for decoding."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.marks import emit, point, proceed, provide, splice


class Cache(NamedTuple):
    """Keys and values of the positions so far; the slot is the position."""

    key: Array  # [B, S, K, H] in a layer, [L, B, S, K, H] in a model
    value: Array

    def write(self, k: Array, v: Array, positions: Array) -> "Cache":
        rows = jnp.arange(k.shape[0])[:, None]
        return Cache(self.key.at[rows, positions].set(k), self.value.at[rows, positions].set(v))


def attend_cached(q: Array, cache: Cache, positions: Array) -> Array:
    """Attention of q [B, T, N, H] at `positions` [B, T] over the cache slots up to its own position."""
    groups = q.shape[2] // cache.key.shape[2]
    k, v = jnp.repeat(cache.key, groups, axis=2), jnp.repeat(cache.value, groups, axis=2)  # [B, S, N, H]
    visible = jnp.arange(k.shape[1]) <= positions[:, None, :, None]  # [B, 1, T, S]
    point("attend_cached.mask", visible, distance=positions[:, None, :, None] - jnp.arange(k.shape[1]))
    scores = jnp.einsum("BTNH,BSNH->BNTS", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1).astype(v.dtype)
    return jnp.einsum("BNTS,BSNH->BTNH", weights, v)


@provide("Decoder.hidden", optional=True, per_layer=True)
def cache() -> Cache:
    return None


@splice("Attention.attend")
def _(q, k, v, context, positions, cache):
    if cache is None:
        proceed()
    else:
        cache = cache.write(k, v, positions)
        context = attend_cached(q, cache, positions)
    emit(cache)
