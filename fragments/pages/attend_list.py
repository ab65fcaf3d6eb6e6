"""Attention over pages: those of all sequences as one list, so that none waits for a longer one.

Source: Dao et al. 2022, arXiv 2205.14135 (online softmax); Ye et al. 2025, arXiv 2501.01005 (balanced work).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, requires
from generator.language.roles import UNSEEN, Cache, Pages

requires("pages", "unstacked")  # of CPUs


def attend_cached(q: Array, cache: Cache, pages: Pages, positions: Array, scale: float) -> Array:
    """Computes attention of q [B, T, N, H] at `positions` [B, T] over the cached tokens and over the step's own.

    Reads blocks of C pages, with an online softmax. The step's own keys come first: every query sees at least itself.
    """
    point("attend_cached.pages", pages, cache)
    B, T, N, H = q.shape
    K, S = pages.key.shape[1:3]
    q = q.reshape(B, T, K, N // K, H)
    before = positions[:, 0]  # [B]: number of cached keys

    def score(q, k, positions, places):
        """Returns the scores [C, N, T, S] of queries at positions [C, T] for keys at places [C, S]."""
        distance = positions[:, None, :, None] - places[:, None, None]  # [C, 1, T, S]
        visible = distance >= 0
        point("attend_cached.mask", visible, distance, positions)
        scores = jnp.einsum("CTKGH,CKSH->CKGTS", q, k, preferred_element_type=jnp.float32).reshape(len(q), N, T, -1)
        scores = scale * scores  # in fp32
        point("attend_cached.scores", scores, distance)
        return jnp.where(visible, scores, -1e30)

    def weigh(weights, v):  # [C, N, T, S], [C, K, S, U] -> [C, N, T, U]
        weights = weights.reshape(len(v), K, N // K, T, -1).astype(v.dtype)
        context = jnp.einsum("CKGTS,CKSU->CKGTU", weights, v, preferred_element_type=jnp.float32)
        return context.reshape(len(v), N, T, -1)

    k, v = (x.astype(q.dtype).swapaxes(1, 2) for x in (cache.key, cache.value))
    scores = score(q, k, positions, jnp.where(positions < 0, UNSEEN, positions))
    highest = scores.max(axis=-1, keepdims=True)  # [B, N, T, 1]
    point("attend_cached.highest", highest, B, H, K, N, S, T)
    weights = jnp.exp(scores - highest)
    total = weights.sum(axis=-1, keepdims=True)
    point("attend_cached.total", total, highest, B, H, K, N, S, T)
    sums = highest, total, weigh(weights, v)

    # a processor's cache holds 1,024 keys with up to 16 queries; reads of more pages than sequences would be wasted
    C = max(min(1024 // (S * -(-T // 16)), B), 1)
    cached = jnp.maximum(-(before // -S), 0)  # [B]: pages with cached keys; none for padding, which is at -1
    with point("attend_cached.ends", cached, before, S, B, C, H, K, N, T):
        ends = jnp.cumsum(cached)  # [B]: where each sequence ends in the list of pages
    listed = jnp.arange(-(-pages.block_tables.size // C) * C)  # [J], of which ends[-1] are in use
    rows = jnp.searchsorted(ends, listed, side="right", method="compare_all")  # the sequence of each page
    index = listed + (cached - ends)[rows]  # and which of its pages it is

    def add_block(i, sums):
        """Adds pages to the running maximum, sum and context of their sequences."""
        highest, total, context = sums
        row, at = (jax.lax.dynamic_slice_in_dim(x, i * C, C) for x in (rows, index))
        page = cache.first + pages.block_tables[row, at]
        places = at[:, None] * S + jnp.arange(S)
        k, v = pages.key[page].astype(q.dtype), pages.value[page].astype(q.dtype)  # [C, K, S, H]
        point("attend_cached.block", k, v)
        scores = score(q[row], k, positions[row], jnp.where(places < before[row][:, None], places, UNSEEN))
        is_own = row == jnp.arange(B)[:, None]  # [B, C]
        new = jnp.where(is_own[:, :, None, None, None], scores.max(axis=-1, keepdims=True), -1e30).max(axis=1)
        above, highest = highest, jnp.maximum(highest, new)
        weights, kept = jnp.exp(scores - highest[row]), jnp.exp(above - highest)
        added = jnp.concatenate([weights.sum(axis=-1, keepdims=True), weigh(weights, v)], axis=-1)
        # what is not finite in one sequence must not reach the others
        added = jnp.einsum("BC,CNTU->BNTU", is_own.astype(jnp.float32), jnp.where(jnp.isfinite(added), added, 0))
        return highest, kept * total + added[..., :1], kept * context + added[..., 1:]

    _, total, context = jax.lax.fori_loop(0, -(ends[-1] // -C), add_block, sums)
    return (context / total).swapaxes(1, 2).astype(q.dtype)
