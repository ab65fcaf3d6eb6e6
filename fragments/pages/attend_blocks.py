"""Attention over pages: blocks of every sequence's, as far as the longest of the step's sequences.

Source: Dao et al. 2022, arXiv 2205.14135 (online softmax).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import excludes, point, requires, setting
from generator.language.roles import UNSEEN, Cache, Pages, pages_per_block

requires("pages")
excludes("unstacked")  # of CPUs


def attend_cached(q: Array, cache: Cache, pages: Pages, positions: Array, scale: float) -> Array:
    """Computes attention of q [B, T, N, H] at `positions` [B, T] over the cached tokens and over the step's own.

    Keys are read in blocks, with an online softmax. The step's own come first, as every query sees at least itself.
    """
    point("attend_cached.pages", pages, cache)
    B, T, N, H = q.shape
    K = cache.key.shape[2]
    n = min(pages_per_block(pages.key.shape[2]), pages.block_tables.shape[1])
    q = q.reshape(B, T, K, N // K, H)
    before = positions[:, :1]  # [B, 1]: number of cached keys

    def add_keys(sums, k, v, places):
        """Adds keys and values [B, K, C, H] at places [B, C] to the running maximum, sum and context."""
        highest, total, context = sums
        distance = positions[:, None, :, None] - places[:, None, None]  # [B, 1, T, C]
        visible = distance >= 0
        point("attend_cached.mask", visible, distance, positions)
        scores = jnp.einsum("BTKGH,BKCH->BKGTC", q, k, preferred_element_type=jnp.float32).reshape(B, N, T, -1)
        scores = scale * scores  # in fp32
        point("attend_cached.scores", scores, distance)
        scores = jnp.where(visible, scores, -1e30)
        above, highest = highest, jnp.maximum(highest, scores.max(axis=-1, keepdims=True))
        weights, kept = jnp.exp(scores - highest), jnp.exp(above - highest)
        total = kept * total + weights.sum(axis=-1, keepdims=True)
        weights = weights.reshape(B, K, N // K, T, -1).astype(v.dtype)
        added = jnp.einsum("BKGTC,BKCU->BKGTU", weights, v, preferred_element_type=jnp.float32)
        return highest, total, kept * context + added.reshape(B, N, T, -1)

    def add_block(i, sums):
        table = jax.lax.dynamic_slice_in_dim(pages.block_tables, i * n, n, axis=1)
        k, v = (x[cache.first + table].astype(q.dtype).swapaxes(1, 2) for x in (pages.key, pages.value))
        k, v = (x.reshape(B, K, -1, x.shape[-1]) for x in (k, v))  # [B, K, n, S, H] -> [B, K, C, H]
        point("attend_cached.block", k, v)
        places = i * k.shape[2] + jnp.arange(k.shape[2])
        return add_keys(sums, k, v, jnp.where(places < before, places, UNSEEN))

    highest, total = jnp.full((B, N, T, 1), -1e30), jnp.zeros((B, N, T, 1))
    point("attend_cached.start", highest, total, B, H, K, N, T)
    sums = highest, total, jnp.zeros((B, N, T, cache.value.shape[-1]))
    new = (x.astype(q.dtype).swapaxes(1, 2) for x in (cache.key, cache.value))
    sums = add_keys(sums, *new, jnp.where(positions < 0, UNSEEN, positions))
    if setting("read_to_the_end"):
        blocks = pages.block_tables.shape[1] // n  # all: a bound that depends on data makes the host wait
    else:
        blocks = -(jnp.max(before) // -(n * pages.key.shape[2]))
    with point("attend_cached.loop", add_block, sums, blocks, before, n, pages, B, H, K, N, T):
        _, total, context = jax.lax.fori_loop(0, blocks, add_block, sums)
    return (context / total).swapaxes(1, 2).astype(q.dtype)
