"""The KV cache: keys and values of many sequences, in pages of one pool.

Source: Kwon et al. 2023, arXiv 2309.06180 (paged attention); Dao et al. 2022, arXiv 2205.14135 (online softmax).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import emit, layers, point, proceed, provide, setting, splice
from generator.language.roles import Config, shard

UNSEEN = 2**30  # a position after that of any query


class Cache(NamedTuple):
    """The KV cache of one layer: where its pages begin, and the new keys and values of a step."""

    first: Array  # [] int32, the layer's first page in the pool; [L] for a stack of layers
    key: Array | None = None  # [B, T, K, H], of this step's tokens, in the pool's format
    value: Array | None = None


class Pages(NamedTuple):
    """The pool of pages, and the block tables of the sequences in a step."""

    key: Array  # [P, K, S, H]: P pages of S positions, layer after layer
    value: Array
    block_tables: Array  # [B, M] int32: the pages of each sequence, counted from its layer's first; 0 is never read

    def write(self, cache: "Cache", positions: Array) -> "Pages":
        """Returns the pages with a step's keys and values written at positions [B, T]; negative ones are padding."""
        size, key, value = self.key.shape[2], self.key, self.value
        for new in jax.tree.leaves(cache, is_leaf=lambda x: isinstance(x, Cache)):
            with point("Pages.page", new, positions, size):
                page = jnp.take_along_axis(self.block_tables, jnp.maximum(positions, 0) // size, axis=1)
            page, slot = jnp.where(positions < 0, 0, page), positions % size  # [B, T]
            page = new.first[:, None, None] + page  # [L, B, T]
            with point("Pages.write", page, slot):
                at = page, slice(None), slot
            key, value = jax.tree.map(lambda pool, x, at=at: pool.at[at].set(x), (key, value), (new.key, new.value))
        return self._replace(key=key, value=value)


def layers_in_pool(config: Config, pages: int) -> Cache:
    """Returns the caches of a model's layers, each of which has `pages` pages."""
    counts, structure = jax.tree.flatten(layers.stacked(lambda group: group.count))
    with point("layers_in_pool.kinds", config, pages, counts):
        firsts = np.split(pages * np.arange(config.layers, dtype=np.int32), np.cumsum(counts)[:-1])
        caches = [Cache(first) for first in firsts]
    return jax.tree.unflatten(structure, caches)


def empty_pages(config: Config, pages: int, size: int) -> tuple[Array, ...]:
    """Returns a zeroed pool of keys and of values: `pages` pages of `size` positions for each layer."""
    with point("empty_pages.count", config, pages):
        count = config.layers * pages
    with point("empty_pages.shape", config, count, size):
        shape = count, config.kv_heads, size, config.head_size
    with point("empty_pages.arrays", shape, config):
        zeros = shard(jnp.zeros(shape, config.dtype), None, "kv_heads", None, None)
        arrays = zeros, zeros
    point("empty_pages.format", arrays)
    return arrays


def pages_per_block(size: int) -> int:
    """Returns how many pages of `size` positions attention reads at a time."""
    return max(setting("kv_block_tokens") // size, 1)


def block_table_widths(longest: int, size: int) -> list[int]:
    """Returns the widths of block tables, in pages, for up to `longest` tokens: multiples of what is read at a time."""
    if setting("block_table_widths") == "by four":
        tokens = [512 * 4**i for i in range(16) if 512 * 4**i < longest] + [longest]
    else:
        tokens = [longest]
    n, widths = pages_per_block(size), [-(-length // size) for length in tokens]
    return sorted({width if width < n else -(-width // n) * n for width in widths})


def attend_cached(q: Array, cache: Cache, pages: Pages, positions: Array) -> Array:
    """Computes attention of q [B, T, N, H] at `positions` [B, T] over the cached tokens and over the step's own.

    Keys are read in blocks, with an online softmax. The step's own come first, as every query sees at least itself.
    """
    point("attend_cached.pages", pages, cache)
    B, T, N, H = q.shape
    K, n = cache.key.shape[2], min(pages_per_block(pages.key.shape[2]), pages.block_tables.shape[1])
    q = (q * H**-0.5).reshape(B, T, K, N // K, H)
    before = positions[:, :1]  # [B, 1]: number of cached keys

    def add_keys(sums, k, v, places):
        """Adds keys and values [B, K, C, H] at places [B, C] to the running maximum, sum and context."""
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
        table = jax.lax.dynamic_slice_in_dim(pages.block_tables, i * n, n, axis=1)
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
        blocks = pages.block_tables.shape[1] // n  # all: a bound that depends on data makes the host wait
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
        cache = cache._replace(key=k, value=v)
        point("Attention.in_pages", cache, pages)
        with point("Attention.cached", q, cache, pages, positions):
            context = attend_cached(q, cache, pages, positions)
    emit(cache)
