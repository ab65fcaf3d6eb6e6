"""Tokens in chunks, over which a recurrence runs: products within a chunk, and a state from one to the next."""

import jax.numpy as jnp
from jax import Array

CHUNK = 64  # tokens


def split_chunks(x: Array) -> Array:
    """Splits tokens into chunks: x [B, T, N, ...] -> [T / C, B, N, C, ...].

    The last one is padded with zeros.
    """
    B, T, *rest = x.shape
    padded = jnp.pad(x, [(0, 0), (0, -T % CHUNK)] + [(0, 0)] * len(rest))
    return jnp.moveaxis(padded.reshape(B, -1, CHUNK, *rest), (1, 2), (0, 3))


def join_chunks(x: Array, length: int) -> Array:
    """Joins chunks of tokens: x [T / C, B, N, C, V] -> [B, length, N, V]."""
    tokens = jnp.moveaxis(x, (0, 3), (1, 2))  # [B, T / C, C, N, V]
    return tokens.reshape(tokens.shape[0], -1, *tokens.shape[3:])[:, :length]


def sums_between(x: Array) -> Array:
    """Sums x [..., C] over the tokens after j up to i: -> [..., C (i), C (j)].

    A difference of running sums would lose what a token with a small x adds to those before it.
    """
    later = jnp.tril(jnp.ones((CHUNK, CHUNK), bool), -1)
    return jnp.cumsum(jnp.where(later, x[..., :, None], 0), axis=-2)
