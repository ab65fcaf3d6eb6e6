"""Attention in plain JAX, in the order and layout that are fast on XLA's CPU backend."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import point, threaded


def attend(q: Array, k: Array, v: Array, segment_ids: Array | None = threaded()) -> Array:
    """Computes causal attention in each segment: q [B, T, N, H]; k, v [B, T, K, H]; segment_ids [B, T] -> [B, T, N, H].

    Splits queries into four blocks, each of which sees keys up to its own end: that skips 3/8 of the scores. With
    segment_ids None, each row is one segment.
    """
    q, k, v = checkpoint_name((q, k, v), "attention")
    T = q.shape[1]
    groups = q.shape[2] // k.shape[2]
    point("attend_xla.keys", k, v, T)
    k, v = jnp.repeat(k, groups, axis=2), jnp.repeat(v, groups, axis=2)
    scale = q.shape[-1] ** -0.5
    q = q.swapaxes(1, 2)  # [B, N, T, H]
    k, v = (jnp.moveaxis(x, 1, 3) for x in (k, v))  # [B, N, H, T], so that gradients transpose no scores
    with point("attend_xla.size", T):
        size = -(-T // 4)
    blocks = []
    for start in range(0, T, size):
        stop = min(start + size, T)
        visible = jnp.arange(stop) <= jnp.arange(start, stop)[:, None]  # [C, S]: C queries, S keys
        point("attend.mask", visible, T, distance=jnp.arange(start, stop)[:, None] - jnp.arange(stop))
        if segment_ids is not None:
            visible = visible & (segment_ids[:, None, start:stop, None] == segment_ids[:, None, None, :stop])
        scores = jnp.einsum("BNCH,BNHS->BNCS", q[:, :, start:stop], k[..., :stop], preferred_element_type=jnp.float32)
        scores = scale * scores  # in fp32
        point("attend.scores", scores, T, distance=jnp.arange(start, stop)[:, None] - jnp.arange(stop))
        scores = jnp.where(visible, scores, -1e30)
        highest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
        point("attend.highest", highest, T)
        weights = jnp.exp(scores - highest)
        total = weights.sum(axis=-1, keepdims=True)  # divides the context, which is smaller than the scores
        point("attend.total", total, highest, T)
        context = jnp.einsum("BNCS,BNHS->BNCH", weights.astype(v.dtype), v[..., :stop])
        blocks.append((context / total).astype(v.dtype))
    return checkpoint_name(jnp.concatenate(blocks, axis=2).swapaxes(1, 2), "context")
