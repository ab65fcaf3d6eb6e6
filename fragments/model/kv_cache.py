"""Key and value cache for decoding."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, point, proceed, provide, splice
from generator.language.roles import Config


class Cache(NamedTuple):
    """Keys and values of the positions so far; the slot is the position."""

    key: Array  # [B, S, K, H] in a layer, [L, B, S, K, H] in a model
    value: Array

    def write(self, k: Array, v: Array, positions: Array) -> "Cache":
        rows = jnp.arange(k.shape[0])[:, None]
        return Cache(self.key.at[rows, positions].set(k), self.value.at[rows, positions].set(v))


def empty_cache(config: Config, layers: int, batch: int, slots: int) -> Cache:
    """A cache of a stack of layers, with room for `slots` positions of each row."""
    with point("empty_cache.shape", config, layers, batch, slots):
        shape = layers, batch, slots, config.kv_heads, config.head_size
    with point("empty_cache.arrays", shape, config):
        cache = Cache(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))
    return cache


def attend_cached(q: Array, cache: Cache, positions: Array) -> Array:
    """Attention of q [B, T, N, H] at `positions` [B, T] over the cache slots up to its own position."""
    groups = q.shape[2] // cache.key.shape[2]
    k, v = jnp.repeat(cache.key, groups, axis=2), jnp.repeat(cache.value, groups, axis=2)  # [B, S, N, H]
    visible = jnp.arange(k.shape[1]) <= positions[:, None, :, None]  # [B, 1, T, S]
    point("attend_cached.mask", visible, k, distance=positions[:, None, :, None] - jnp.arange(k.shape[1]))
    scores = jnp.einsum("BTNH,BSNH->BNTS", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    point("attend_cached.scores", scores)
    scores = jnp.where(visible, scores, -1e30)
    with point("attend_cached.weights", scores):
        weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("BNTS,BSNH->BTNH", weights.astype(v.dtype), v)


@provide("attend_cached")
def positions(positions) -> Array:
    return positions


@provide("Decoder.hidden", optional=True, per_layer=True)
def cache() -> Cache:
    return None


@splice("Attention.attend")
def _(q, k, v, context, positions, cache):
    if cache is None:
        proceed()
    else:
        cache = cache.write(k, v, positions)
        with point("Attention.cached", q, cache, positions):
            context = attend_cached(q, cache, positions)
    emit(cache)
