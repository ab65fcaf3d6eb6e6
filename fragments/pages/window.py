"""Pages of the KV cache for layers with sliding-window or chunked attention: a sequence frees those it has passed.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (block tables).
"""

import jax
import jax.numpy as jnp
import numpy as np

from generator.language import layers, point, requires, setting, splice
from generator.language.roles import Cache, Pages

requires("sliding_window or chunked_attention")


class WindowCache(Cache):
    """The cache of one layer with a window."""


def own_tables(cache: Cache, pages: Pages) -> Pages:
    """Returns the pages with this layer's block tables [B, M] out of [B, 2, M]: full attention, then windows."""
    return pages._replace(block_tables=pages.block_tables[:, int(isinstance(cache, WindowCache))])


def pages_of_layers(pages: int, window_pages: np.ndarray) -> np.ndarray:
    """Returns the number of pages of each layer, [L]; `window_pages` [L] is 0 for layers without a window."""
    return np.where(window_pages > 0, window_pages, pages).astype(np.int32)


@splice("layers_in_pool.kinds")
def _(config, pages, caches, window_pages):
    sizes = pages_of_layers(pages, window_pages)
    with point("layers_in_pool.starts", sizes, window_pages):
        starts = np.cumsum(sizes, dtype=np.int32) - sizes
    if setting("one_stack"):
        caches = WindowCache(starts) if window_pages.any() else Cache(starts)
    else:
        lengths, treedef = jax.tree.flatten(layers.stacked(lambda group: group.count))
        ends = np.cumsum(lengths)[:-1]
        stacks = zip(np.split(starts, ends), np.split(window_pages, ends), strict=True)
        caches = [WindowCache(first) if window.any() else Cache(first) for first, window in stacks]
        caches = jax.tree.unflatten(treedef, caches)


@splice("empty_pages.count")
def _(pages, count, window_pages):
    count = int(pages_of_layers(pages, window_pages).sum())


@splice("Pages.page")
def _(self, new, positions, size, page):
    page = jnp.take_along_axis(own_tables(new, self).block_tables, jnp.maximum(positions, 0) // size, axis=1)


@splice("attend_cached.pages", "attend_token.pages", optional=True)
def _(pages, cache):
    pages = own_tables(cache, pages)


@splice("test_pages_kernel.block_tables", optional=True)
def _(new, block_tables):
    new = WindowCache(*new)
    block_tables = np.stack([np.zeros_like(block_tables), block_tables], axis=1)
