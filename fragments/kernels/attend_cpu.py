"""Attention for XLA's CPU backend."""

import jax
import jax.numpy as jnp
from jax import Array


def attend(q: Array, k: Array, v: Array, segment_ids: Array | None) -> Array:
    """Causal attention inside each segment. q [B, T, N, H]; k, v [B, T, K, H]; segment_ids [B, T] -> [B, T, N, H]."""
    T, groups = q.shape[1], q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, groups, axis=2), jnp.repeat(v, groups, axis=2)
    visible = jnp.tril(jnp.ones((T, T), bool))[None]  # [1, T, T]
    if segment_ids is not None:
        visible = visible & (segment_ids[:, :, None] == segment_ids[:, None, :])
    scores = jnp.einsum("BTNH,BSNH->BNTS", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(visible[:, None], scores, -1e30), axis=-1).astype(v.dtype)
    return jnp.einsum("BNTS,BSNH->BTNH", weights, v)
