"""Attention in plain JAX by tiles of queries and keys, as is fast on XLA's CPU backend.

Source: Dao et al. 2022, arXiv 2205.14135: it never holds all scores, and the backward pass computes them again.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import excludes, point, threaded

excludes("attend_xla")


def take(x: Array, start: Array, size: int, axis: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis)


def put(x: Array, part: Array, start: Array, axis: int) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(x, part, start, axis)


def add_to(x: Array, part: Array, start: Array, axis: int) -> Array:
    return put(x, take(x, start, part.shape[axis], axis) + part, start, axis)


def attend(q: Array, k: Array, v: Array, segment_ids: Array | None = threaded()) -> Array:
    """Computes causal attention in each segment: q [B, T, N, H]; k, v [B, T, K, H]; segment_ids [B, T] -> [B, T, N, H].

    Scores of a tile of queries and keys stay in the processor's cache. With segment_ids None, each row is one segment.
    """
    q, k, v = checkpoint_name((q, k, v), "attention")
    groups = q.shape[2] // k.shape[2]
    length = q.shape[1]
    scale = q.shape[-1] ** -0.5
    point("attend_tiles.keys", k, v)
    S = min(length, 128)  # keys of a tile
    T = length + -length % S
    with point("attend_tiles.queries", S, T):
        C = S
    q, k, v = (jnp.pad(x, ((0, 0), (0, T - length), (0, 0), (0, 0))) for x in (q, k, v))
    q = q.swapaxes(1, 2)  # [B, N, T, H]
    k, v = (jnp.moveaxis(jnp.repeat(x, groups, axis=2), 1, 3) for x in (k, v))  # [B, N, H, T], as their gradients come
    if segment_ids is not None:
        segment_ids = jnp.pad(segment_ids, ((0, 0), (0, T - length)))
    tiles = [(i, j) for i in range(0, T, C) for j in range(0, i + C, S)]  # the first query and key of each
    point("attend_tiles.tiles", tiles, S, C, T)

    def multiply(equation: str, *factors: Array) -> Array:
        return jnp.einsum(equation, *factors, preferred_element_type=jnp.float32)

    def mask(scores: Array, segment_ids: Array | None, i: Array, j: Array) -> Array:
        """Scales and masks the scores [B, N, C, S] of a tile."""
        queries, keys = i + jnp.arange(C)[:, None], j + jnp.arange(S)
        visible = keys <= queries
        point("attend.mask", visible, distance=queries - keys)
        if segment_ids is not None:
            query_ids, others = take(segment_ids, i, C, 1), take(segment_ids, j, S, 1)
            visible = visible & (query_ids[:, None, :, None] == others[:, None, None])
        scores = scale * scores  # in fp32
        point("attend.scores", scores, distance=queries - keys)
        return jnp.where(visible, scores, -1e30)

    def forward(q: Array, k: Array, v: Array, segment_ids: Array | None) -> tuple[tuple[Array, Array], tuple]:
        """Returns the context [B, N, T, H] and the logarithms of the sums of exponentials of scores [B, N, T, 1]."""

        def add_tile(sums: tuple, tile: Array) -> tuple[tuple, None]:
            i, j = tile
            scores = mask(multiply("BNCH,BNHS->BNCS", take(q, i, C, 2), take(k, j, S, 3)), segment_ids, i, j)
            before, total, context = (take(x, i, C, 2) for x in sums)
            highest = jnp.maximum(before, scores.max(axis=-1, keepdims=True))
            weights, shrink = jnp.exp(scores - highest), jnp.exp(before - highest)
            total = shrink * total + weights.sum(axis=-1, keepdims=True)
            added = multiply("BNCS,BNHS->BNCH", weights.astype(v.dtype), take(v, j, S, 3))
            new = highest, total, shrink * context + added
            return tuple(put(x, part, i, 2) for x, part in zip(sums, new, strict=True)), None

        lowest = jnp.full_like(q[..., :1], -1e30, jnp.float32)
        zeros = jnp.zeros((*q.shape[:3], v.shape[2]), jnp.float32)
        (highest, total, context), _ = jax.lax.scan(add_tile, (lowest, zeros[..., :1], zeros), jnp.array(tiles))
        sums = (context / total).astype(v.dtype), highest + jnp.log(total)
        sums = checkpoint_name(sums, "context")
        return sums, (q, k, v, segment_ids, *sums)

    def backward(saved: tuple, gradients: tuple[Array, Array]) -> tuple[Array, Array, Array, None]:
        q, k, v, segment_ids, context, logsumexp = saved
        d_context, d_logsumexp = gradients
        inner = jnp.sum(d_context.astype(jnp.float32) * context, axis=-1, keepdims=True) - d_logsumexp

        def add_tile(sums: tuple, tile: Array) -> tuple[tuple, None]:
            i, j = tile
            queries, keys, values, dy = take(q, i, C, 2), take(k, j, S, 3), take(v, j, S, 3), take(d_context, i, C, 2)
            scores, pull_back = jax.vjp(mask, multiply("BNCH,BNHS->BNCS", queries, keys), segment_ids, i, j)
            weights = jnp.exp(scores - take(logsumexp, i, C, 2))
            d_weights = multiply("BNCH,BNHS->BNCS", dy, values)
            d_scores, *_ = pull_back(weights * (d_weights - take(inner, i, C, 2)))
            weights, d_scores = weights.astype(v.dtype), d_scores.astype(q.dtype)
            dq, dk = multiply("BNCS,BNHS->BNCH", d_scores, keys), multiply("BNCS,BNCH->BNHS", d_scores, queries)
            dv = multiply("BNCS,BNCH->BNHS", weights, dy)
            parts = (dq, i, 2), (dk, j, 3), (dv, j, 3)  # a tile's share of a sum, its start and axis there
            return tuple(add_to(x, *part) for x, part in zip(sums, parts, strict=True)), None

        zeros = tuple(jnp.zeros_like(x, jnp.float32) for x in (q, k, v))
        sums, _ = jax.lax.scan(add_tile, zeros, jnp.array(tiles))
        return *(x.astype(y.dtype) for x, y in zip(sums, (q, k, v), strict=True)), None

    attend_tiles = jax.custom_vjp(lambda *inputs: forward(*inputs)[0])
    attend_tiles.defvjp(forward, backward)
    with point("attend_tiles.context", attend_tiles, q, k, v, segment_ids, C, S, T):
        context, _ = attend_tiles(q, k, v, segment_ids)
    return context[:, :, :length].swapaxes(1, 2)
