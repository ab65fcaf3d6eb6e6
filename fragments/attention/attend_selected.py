"""Attention from each token to the keys that an indexer ranks highest, in plain JAX by blocks of queries.

Source: DeepSeek-AI 2025, arXiv 2512.02556, section 2.1: equations 1, 2 and 4.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.scipy.special import xlogy

from generator.language import excludes, point, requires, threaded

requires("indexer")
# whose kernels take no selection of keys
excludes("attend_tiles", "attend_xla", "attend_splash", "attend_cudnn", "attend_nki")


class Index(NamedTuple):
    """What an indexer makes of tokens, to rank keys for queries. Letters of shapes: J heads, I size of one."""

    query: Array  # [B, T, J, I]
    weight: Array  # [B, T, J], of the heads of a query, in fp32
    key: Array  # [B, T, I], which all heads share


def index_scores(query: Array, weight: Array, key: Array) -> Array:
    """Ranks keys [B, S, I] for queries [B, T, J, I], whose heads have weights [B, T, J]: [B, T, S] in fp32."""
    scores = jnp.einsum("BTJI,BSI->BTJS", query, key, preferred_element_type=jnp.float32)
    return jnp.sum(weight[..., None] * jax.nn.relu(scores), axis=2)


def highest(scores: Array, count: int) -> Array:
    """Returns which `count` of scores [..., S] are highest; of equal ones, the first."""
    lowest = jax.lax.top_k(scores, min(count, scores.shape[-1]))[0][..., -1:]
    above, equal = scores > lowest, scores == lowest
    places = count - above.sum(axis=-1, keepdims=True)
    return above | equal & (jnp.cumsum(equal, axis=-1) <= places)


def map_blocks(f: Callable[[tuple], Array | tuple], inputs: tuple, size: int) -> Array | tuple:
    """Applies f to blocks of tokens, up to `size` in each, one block after the other: [B, T, ...] -> [B, T, ...]."""
    T = inputs[0].shape[1]
    C = min(T, size)

    def split(x):  # [B, T, ...] -> [T / C, B, C, ...]
        x = jnp.pad(x, ((0, 0), (0, -T % C), *[(0, 0)] * (x.ndim - 2)))
        return jnp.moveaxis(x.reshape(len(x), -1, C, *x.shape[2:]), 1, 0)

    def join(y):  # [T / C, B, C, ...] -> [B, T, ...]
        y = jnp.moveaxis(y, 0, 1)
        return y.reshape(len(y), -1, *y.shape[3:])[:, :T]

    return jax.tree.map(join, jax.lax.map(f, jax.tree.map(split, inputs)))


def divergence(weights: Array, ranks: Array, visible: Array) -> Array:
    """Returns the Kullback-Leibler divergence of ranks from weights, for each token, [B, C] in nats.

    Weights [B, N, C, T], of which the mean over heads counts, have no gradient; ranks [B, C, T] of visible keys have.
    All are in fp32: rounded weights do not sum to 1.
    """
    target = jax.lax.stop_gradient(weights.mean(axis=1))  # [B, C, T]
    log_share = jax.nn.log_softmax(jnp.where(visible, ranks, -1e30), axis=-1)
    return jnp.sum(xlogy(target, target) - target * log_share, axis=-1)


def attend_selected(
    q: Array, k: Array, v: Array, index: Index, count: int, segment_ids: Array | None = threaded()
) -> tuple[Array, Array]:
    """Computes causal attention in each segment to the `count` keys that rank highest for each query.

    Blocks of C queries come one after another, so that C x T scores of each head are held; the backward pass computes
    them again.

    Args:
        q, k: [B, T, N, H].
        v: [B, T, N, U].
        segment_ids: [B, T].

    Returns:
        What the tokens read [B, T, N, U], and how far ranks diverge from attention's weights [B, T], in nats.
    """
    q, k, v = checkpoint_name((q, k, v), "attention")
    places = jnp.arange(q.shape[1])[None]
    scale = q.shape[-1] ** -0.5
    # so that their gradients are summed over blocks in fp32
    k, v, index_key = (x.astype(jnp.float32) for x in (k, v, index.key))

    @jax.checkpoint
    def attend_block(block):
        q, query, weight, own_places, own_ids = block
        visible = places[:, None] <= own_places[:, :, None]  # [1, C, T]
        if segment_ids is not None:
            visible = visible & (own_ids[:, :, None] == segment_ids[:, None])  # [B, C, T]
        ranks = jnp.where(visible, index_scores(query, weight, index_key.astype(query.dtype)), -jnp.inf)
        with point("attend_selected.selected", visible, ranks, count):
            visible = visible & highest(ranks, count)
        scores = jnp.einsum("BCNH,BTNH->BNCT", q, k.astype(q.dtype), preferred_element_type=jnp.float32)
        scores = jnp.where(visible[:, None], scale * scores, -1e30)
        weights = jax.nn.softmax(scores, axis=-1)
        context = jnp.einsum("BNCT,BTNU->BCNU", weights.astype(q.dtype), v.astype(q.dtype))
        return context, divergence(weights, ranks, visible)

    context, index_divergence = map_blocks(attend_block, (q, index.query, index.weight, places, segment_ids), 128)
    return checkpoint_name(context, "context"), index_divergence
