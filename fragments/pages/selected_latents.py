"""Attention to selected keys over pages: the keys of indexers have pages of their own beside those of latents.

Source: DeepSeek-AI 2025, arXiv 2512.02556, section 2.1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import excludes, proceed, requires, splice
from generator.language.roles import UNSEEN, Cache, Index, Pages, index_scores, map_blocks

requires("pages/pages", "latent_attention", "indexer")
excludes("pages/int8")  # which holds keys and values alone


class IndexedLatents(NamedTuple):
    """What pages hold in place of values."""

    latent: Array  # [..., R]
    index: Array  # [..., I], a key of the indexer


@splice("empty_pages.arrays")
def _(shape, config, arrays):
    proceed()
    key, latent = arrays
    arrays = key, IndexedLatents(latent, jnp.zeros((*shape, config.index_size), latent.dtype))


def attend_selected_latents(
    q: Array, index: Index, count: int, cache: Cache, pages: Pages, kernel: Array, positions: Array
) -> Array:
    """Attends from q [B, T, N, H] to the `count` latents whose keys rank highest for each token.

    Ranks all keys of the indexer, in pages and in the step, and reads the latents of those chosen alone. The query
    absorbs the projection of latents to keys; values are projected at the end. A block has C tokens, each K keys.
    """
    B, T, _, H = q.shape
    S, P = pages.key.shape[2:]
    page = cache.first + pages.block_tables  # [B, M]
    room = S * page.shape[1]
    to_key, to_value = jnp.split(kernel.astype(q.dtype), [H - P], axis=-1)  # [R, N, C], [R, N, U]
    of_pages = pages.value.index[page].reshape(B, room, -1)
    keys = jnp.concatenate([of_pages, cache.value.index[:, :, 0]], axis=1).astype(q.dtype)  # [B, M S + T, I]
    places = jnp.where(jnp.arange(room) < positions[:, :1], jnp.arange(room), UNSEEN)
    places = jnp.concatenate([places, jnp.where(positions < 0, UNSEEN, positions)], axis=1)  # [B, M S + T]

    def read(pool, new, chosen):
        """Reads vectors [B, C, K, X] at chosen places, from pages or among those of the step."""
        chosen_page = jnp.take_along_axis(page[:, None], jnp.minimum(chosen, room - 1) // S, axis=2)  # [B, C, K]
        in_step = jnp.take_along_axis(new[:, None, :, 0], jnp.maximum(chosen - room, 0)[..., None], axis=2)
        return jnp.where((chosen < room)[..., None], pool[chosen_page, 0, chosen % S], in_step).astype(q.dtype)

    def attend_block(block):
        q, query, weight, positions = block
        visible = places[:, None] <= positions[:, :, None]  # [B, C, M S + T]
        ranks = jnp.where(visible, index_scores(query, weight, keys), -jnp.inf)
        ranks, chosen = jax.lax.top_k(ranks, min(count, ranks.shape[-1]))  # [B, C, K]
        latent = read(pages.value.latent, cache.value.latent, chosen)  # [B, C, K, R]
        key = jnp.concatenate([latent, read(pages.key, cache.key, chosen)], axis=-1)  # [B, C, K, R + P]
        q_latent = jnp.einsum("BCNX,RNX->BCNR", q[..., :-P], to_key)
        q = jnp.concatenate([q_latent, q[..., -P:]], axis=-1)
        scores = jnp.einsum("BCNX,BCKX->BCNK", q, key, preferred_element_type=jnp.float32)
        scores = jnp.where(ranks[:, :, None] > -jnp.inf, H**-0.5 * scores, -1e30)
        weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
        context = jnp.einsum("BCNK,BCKR->BCNR", weights, latent)
        return jnp.einsum("BCNR,RNU->BCNU", context, to_value)

    return map_blocks(attend_block, (q, index.query, index.weight, positions), 16)
