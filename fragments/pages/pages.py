"""The KV cache: keys and values of many sequences, in pages of one pool.

Source: Kwon et al. 2023, arXiv 2309.06180 (paged attention).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import emit, layers, point, proceed, provide, setting, splice
from generator.language.roles import ModelConfig, attend_cached, shard

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
    block_tables: Array  # [B, M] int32: pages of each sequence, counted from its layer's first; page 0 is for padding

    def write(self, new: "Cache", positions: Array) -> "Pages":
        """Returns the pages with keys and values of stacked layers at positions [B, T]; negative ones are padding."""
        size = self.key.shape[2]
        with point("Pages.page", new, positions, size):
            page = jnp.take_along_axis(self.block_tables, jnp.maximum(positions, 0) // size, axis=1)
        page = jnp.where(positions < 0, 0, page)  # [B, T]
        slot = positions % size  # [B, T]
        page = new.first[:, None, None] + page  # [L, B, T]
        with point("Pages.write", page, slot):
            index = page, slice(None), slot
        pool, values = (self.key, self.value), (new.key, new.value)
        key, value = jax.tree.map(lambda x, y: x.at[index].set(y), pool, values)
        return self._replace(key=key, value=value)


def layers_in_pool(config: ModelConfig, pages: int) -> Cache:
    """Returns the caches of a model's layers, each of which has `pages` pages."""
    with point("layers_in_pool.kinds", config, pages):
        if setting("one_stack"):
            caches = Cache(pages * np.arange(layers.scanned, dtype=np.int32))
        else:
            counts, structure = jax.tree.flatten(layers.stacked(lambda group: group.count))
            firsts = np.split(pages * np.arange(layers.scanned, dtype=np.int32), np.cumsum(counts)[:-1])
            caches = jax.tree.unflatten(structure, [Cache(first) for first in firsts])
    return caches


def empty_pages(config: ModelConfig, pages: int, size: int) -> tuple[Array, ...]:
    """Returns a zeroed pool of keys and of values: `pages` pages of `size` positions for each layer."""
    with point("empty_pages.pools", config, pages, size):
        with point("empty_pages.count", config, pages):
            count = layers.scanned * pages
        with point("empty_pages.shape", config, count, size):
            shape = count, config.kv_heads, size, config.head_size
        with point("empty_pages.arrays", shape, config):
            zeros = shard(
                jnp.zeros(shape, "float32" if setting("pages_in_fp32") else config.dtype), None, "kv_heads", None, None
            )
            arrays = zeros, zeros
        point("empty_pages.format", arrays)
    return arrays


def pages_per_block(size: int) -> int:
    """Returns how many pages of `size` positions a block of a block table has."""
    return max(setting("kv_block_tokens") // size, 1)


def block_table_width(tokens: int, size: int) -> int:
    """Returns how many pages of `size` positions a block table has for these tokens: whole blocks, or less than one."""
    pages = -(-tokens // size)
    block = pages_per_block(size)
    return pages if pages < block else -(-pages // block) * block


def block_table_widths(longest: int, size: int) -> list[int]:
    """Returns the widths of block tables, in pages, for up to `longest` tokens."""
    if setting("block_table_widths") == "by four":
        tokens = [*(512 * 4**i for i in range(16) if 512 * 4**i < longest), longest]
        return sorted({block_table_width(length, size) for length in tokens})
    else:
        return [block_table_width(longest, size)]


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
            context = attend_cached(q, cache, pages, positions, q.shape[-1] ** -0.5)
    emit(cache)
