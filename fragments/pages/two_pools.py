"""Two pools of pages: heads of layers with full attention have another size and another number."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import excludes, requires, setting, splice
from generator.language.roles import Cache, Pages, WindowCache, shard

requires("pages/pages", "global_heads", "sliding_window")
excludes("pages/int8", "attend_token")  # which take pages for one array


class Pools(NamedTuple):
    """What pages hold, in place of one array."""

    full: Array  # [P, K, S, H], of layers with full attention
    local: Array  # of layers with a window


def own_pool(cache: Cache, pages: Pages) -> Pages:
    """Returns the pages with the pool of a layer in place of both."""
    pool = int(isinstance(cache, WindowCache))
    return pages._replace(key=pages.key[pool], value=pages.value[pool])


def write_own(pages: Pages, cache: Cache, positions: Array) -> Pages:
    """Writes the keys and values of layers at positions [B, T] to their pool."""
    written = own_pool(cache, pages).write(cache, positions)
    name = "local" if isinstance(cache, WindowCache) else "full"
    return pages._replace(
        key=pages.key._replace(**{name: written.key}), value=pages.value._replace(**{name: written.value})
    )


@splice("empty_pages.pools")
def _(config, pages, size, window_pages, arrays):
    full = pages * int((window_pages == 0).sum()), config.global_kv_heads, size, config.global_head_size
    local = int(window_pages.sum()), config.kv_heads, size, config.head_size
    pools = [
        shard(jnp.zeros(shape, "float32" if setting("pages_in_fp32") else config.dtype), None, "kv_heads", None, None)
        for shape in (full, local)
    ]
    arrays = Pools(*pools), Pools(*pools)


@splice("layers_in_pool.starts")
def _(sizes, window_pages, starts):
    filled = np.where(window_pages > 0, np.cumsum(sizes * (window_pages > 0)), np.cumsum(sizes * (window_pages == 0)))
    starts = filled.astype(np.int32) - sizes


@splice("attend_cached.pages", after="window")
def _(pages, cache):
    pages = own_pool(cache, pages)


@splice("write.layers")
def _(pages, cache, positions):
    pages = write_own(pages, cache, positions)
