"""Pages of layers that see the nearest tokens only: a text has others in them, which it gives back as it goes on.

Source: Kwon et al. 2023, arXiv 2309.06180, section 4 (tables of pages).
"""

import jax.numpy as jnp
import numpy as np

from generator.language import requires, splice
from generator.language.roles import Cache, Pages

requires("sliding_window or chunked_attention")


class NearCache(Cache):
    """One layer that sees the nearest tokens only."""


def tables_of(cache: Cache, pages: Pages) -> Pages:
    """The pages as a layer sees them: of tables [B, 2, M] its own, [B, M]; the second ones are for near layers."""
    return pages._replace(tables=pages.tables[:, int(isinstance(cache, NearCache))])


def pages_of_layers(pages: int, near_pages: np.ndarray) -> np.ndarray:
    """How many pages each layer has, [L], where `near_pages` [L] are those of near layers, and 0 of the others."""
    return np.where(near_pages > 0, near_pages, pages).astype(np.int32)


@splice("layers_in_pool.kinds")
def _(pages, counts, caches, near_pages):
    sizes, ends = pages_of_layers(pages, near_pages), np.cumsum(counts)[:-1]
    stacks = zip(np.split(np.cumsum(sizes, dtype=np.int32) - sizes, ends), np.split(near_pages, ends), strict=True)
    caches = [NearCache(first) if near.any() else Cache(first) for first, near in stacks]


@splice("empty_pages.count")
def _(pages, count, near_pages):
    count = int(pages_of_layers(pages, near_pages).sum())


@splice("Pages.page")
def _(self, new, positions, size, page):
    page = jnp.take_along_axis(tables_of(new, self).tables, jnp.maximum(positions, 0) // size, axis=1)


@splice("attend_cached.pages", "attend_token.pages", optional=True)
def _(pages, cache):
    pages = tables_of(cache, pages)


@splice("test_pages_kernel.tables", optional=True)
def _(new, tables):
    new, tables = NearCache(*new), np.stack([np.zeros_like(tables), tables], axis=1)  # the second is its
