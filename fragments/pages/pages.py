"""Keys and values of many texts, in pages of a pool.

Source: Kwon et al. 2023, arXiv 2309.06180 (pages); Dao et al. 2022, arXiv 2205.14135 (softmax by blocks of keys).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import emit, layers, point, proceed, provide, setting, splice
from generator.language.roles import Config, Int8Heads, heads_in_int8, shard

UNSEEN = 2**30  # a position that is later than that of any query


class Cache(NamedTuple):
    """One layer, as a model with pages sees it."""

    first: Array  # [] int32, of its pages in the pool; [L] in a model
    key: Array | Int8Heads | None = None  # [B, T, K, H], of the tokens that go through it now, as pages have them
    value: Array | Int8Heads | None = None


class Pages(NamedTuple):
    """The pool of pages, and where in it the texts are that go through the model now."""

    key: Array | Int8Heads  # [P, K, S, H]: those of one layer after those of another, each of S positions
    value: Array | Int8Heads
    tables: Array  # int32: the M pages of each text, in order, as each layer counts its own; 0 is never seen

    def write(self, cache: "Cache", positions: Array) -> "Pages":
        """The pages with the keys and values that a model returned, at positions [B, T]; below 0 is padding."""
        size, key, value = self.key.shape[2], self.key, self.value
        for new in jax.tree.leaves(cache, is_leaf=lambda x: isinstance(x, Cache)):
            with point("Pages.page", new, positions, size):
                page = jnp.take_along_axis(self.tables, jnp.maximum(positions, 0) // size, axis=1)
            page, slot = jnp.where(positions < 0, 0, page), positions % size  # [B, T]
            page = new.first[:, None, None] + page  # [L, B, T]
            with point("Pages.write", page, slot):
                at = page, slice(None), slot
            key, value = put(key, at, new.key), put(value, at, new.value)
        return self._replace(key=key, value=value)


def put(pool: Array | Int8Heads, at: tuple[Any, ...], x: Array | Int8Heads) -> Array | Int8Heads:
    """The pool with x at these places."""
    return jax.tree.map(lambda pool, x: pool.at[at].set(x), pool, x)


def layers_in_pool(config: Config, pages: int) -> Cache:
    """The layers of a model, of which each has so many pages."""
    counts, structure = jax.tree.flatten(layers.stacked(lambda group: group.count))
    with point("layers_in_pool.kinds", config, pages, counts):
        firsts = np.split(pages * np.arange(config.layers, dtype=np.int32), np.cumsum(counts)[:-1])
        caches = [Cache(first) for first in firsts]
    return jax.tree.unflatten(structure, caches)


def empty_pages(config: Config, pages: int, size: int, int8: bool) -> tuple[Array | Int8Heads, ...]:
    """Keys and values of a pool that has so many pages for each layer, each of `size` positions: all zero."""
    with point("empty_pages.count", config, pages):
        count = config.layers * pages
    with point("empty_pages.shape", config, count, size):
        shape = count, config.kv_heads, size, config.head_size
    with point("empty_pages.arrays", shape, config):
        zeros = shard(jnp.zeros(shape, config.dtype), None, "kv_heads", None, None)
        arrays = zeros, zeros
    if int8:
        arrays = tuple(Int8Heads(x.astype(jnp.int8), x[..., 0].astype(jnp.float32)) for x in arrays)
    return arrays


def as_in_pages(x: Array, pool: Array | Int8Heads) -> Array | Int8Heads:
    """Keys or values [B, T, K, H] of a layer as its pages have them."""
    point("as_in_pages.heads", x, pool)
    return heads_in_int8(x) if isinstance(pool, Int8Heads) else x


def pages_at_a_time(size: int) -> int:
    """Pages of `size` positions that attention reads at a time, where there are so many."""
    return max(setting("keys_at_a_time") // size, 1)


def table_widths(longest: int, size: int) -> list[int]:
    """Pages that tables can have, for texts of up to `longest` tokens: multiples of those that are read at a time."""
    if setting("table_widths") == "by four":
        tokens = [512 * 4**i for i in range(16) if 512 * 4**i < longest] + [longest]
    else:
        tokens = [longest]
    n, widths = pages_at_a_time(size), [-(-length // size) for length in tokens]
    return sorted({width if width < n else -(-width // n) * n for width in widths})


def attend_cached(q: Array, cache: Cache, pages: Pages, positions: Array) -> Array:
    """Attention of q [B, T, N, H] at `positions` [B, T] over what the pages hold before the first, and over its own.

    Keys come in blocks; the softmax goes along. Own keys are first: each sees itself.
    """
    point("attend_cached.pages", pages, cache)
    B, T, N, H = q.shape
    K, n = cache.key.shape[2], min(pages_at_a_time(pages.key.shape[2]), pages.tables.shape[1])
    q = (q * H**-0.5).reshape(B, T, K, N // K, H)
    before = positions[:, :1]  # [B, 1]: so many keys are in the pages

    def add_keys(sums, k, v, places):
        """Adds keys and values [B, K, C, H] at places [B, C] to the sums, of which the highest score is apart."""
        highest, total, context = sums
        distance = positions[:, None, :, None] - places[:, None, None]  # [B, 1, T, C]
        visible = distance >= 0
        point("attend_cached.mask", visible, distance, positions)
        scores = jnp.einsum("BTKGH,BKCH->BKGTC", q, k, preferred_element_type=jnp.float32).reshape(B, N, T, -1)
        point("attend_cached.scores", scores)
        scores = jnp.where(visible, scores, -1e30)
        above, highest = highest, jnp.maximum(highest, scores.max(axis=-1, keepdims=True))
        weights, kept = jnp.exp(scores - highest), jnp.exp(above - highest)
        total = kept * total + weights.sum(axis=-1, keepdims=True)
        weights = weights.reshape(B, K, N // K, T, -1).astype(v.dtype)
        added = jnp.einsum("BKGTC,BKCU->BKGTU", weights, v, preferred_element_type=jnp.float32)
        return highest, total, kept * context + added.reshape(B, N, T, -1)

    def add_block(i, sums):
        table = jax.lax.dynamic_slice_in_dim(pages.tables, i * n, n, axis=1)
        k, v = (x[cache.first + table].astype(q.dtype).swapaxes(1, 2) for x in (pages.key, pages.value))
        k, v = (x.reshape(B, K, -1, x.shape[-1]) for x in (k, v))  # [B, K, n, S, H] -> [B, K, C, H]
        point("attend_cached.block", k, v)
        places = i * k.shape[2] + jnp.arange(k.shape[2])
        return add_keys(sums, k, v, jnp.where(places < before, places, UNSEEN))

    highest, total = jnp.full((B, N, T, 1), -1e30), jnp.zeros((B, N, T, 1))
    point("attend_cached.start", highest, total)
    sums = highest, total, jnp.zeros((B, N, T, cache.value.shape[-1]))
    own = (x.astype(q.dtype).swapaxes(1, 2) for x in (cache.key, cache.value))
    sums = add_keys(sums, *own, jnp.where(positions < 0, UNSEEN, positions))
    if setting("read_to_the_end"):
        blocks = pages.tables.shape[1] // n  # all: for how many have keys, the host would wait in each layer
    else:
        blocks = -(jnp.max(before) // -(n * pages.key.shape[2]))
    with point("attend_cached.loop", add_block, sums, blocks, before, n, pages):
        _, total, context = jax.lax.fori_loop(0, blocks, add_block, sums)
    return (context / total).swapaxes(1, 2).astype(q.dtype)


@provide("Decoder.hidden", optional=True, per_layer=True)
def cache() -> Cache:
    return None


@provide("Decoder.hidden", optional=True)
def pages() -> Pages:
    return None


@splice("Attention.attend")
def _(q, k, v, context, positions, pages, cache):
    if pages is None:
        proceed()
    else:
        cache = cache._replace(key=as_in_pages(k, pages.key), value=as_in_pages(v, pages.value))
        with point("Attention.cached", q, cache, pages, positions):
            context = attend_cached(q, cache, pages, positions)
    emit(cache)
