"""Tokens in chunks, over which a recurrence runs: products within a chunk, and a state from one to the next."""

import jax.numpy as jnp
from jax import Array

CHUNK = 64  # tokens


def split_chunks(x: Array) -> Array:
    """Splits tokens into chunks, the last one padded: x [B, T, N, ...] -> [T / C, B, N, C, ...]."""
    B, T, *rest = x.shape
    padded = jnp.pad(x, [(0, 0), (0, -T % CHUNK)] + [(0, 0)] * len(rest))
    return jnp.moveaxis(padded.reshape(B, -1, CHUNK, *rest), (1, 2), (0, 3))


def join_chunks(x: Array, length: int) -> Array:
    """Joins chunks of tokens: x [T / C, B, N, C, V] -> [B, length, N, V]."""
    tokens = jnp.moveaxis(x, (0, 3), (1, 2))  # [B, T / C, C, N, V]
    return tokens.reshape(tokens.shape[0], -1, *tokens.shape[3:])[:, :length]
