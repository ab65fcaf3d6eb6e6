"""Causal convolution of each channel over the last tokens."""

import jax.numpy as jnp
from jax import Array


def scale_channels(x: Array, weights: Array) -> Array:
    """Multiplies x [B, T, ...] by a weight of each channel [...]; gradients of weights are summed in their dtype."""
    return x * jnp.broadcast_to(weights, x.shape).astype(x.dtype)


def convolve(x: Array, kernel: Array, segment_ids: Array | None) -> Array:
    """Convolves each channel over tokens: x [B, T, ...], kernel [S, ...] -> [B, T, ...].

    The last row of the kernel is for the token itself. Tokens of another segment, or before the first, count as 0.
    """
    y = scale_channels(x, kernel[-1])
    channels = [1] * (x.ndim - 2)
    for distance in range(1, kernel.shape[0]):
        earlier = jnp.roll(x, distance, axis=1)
        is_seen = jnp.arange(x.shape[1]) >= distance  # [T]
        if segment_ids is not None:
            is_seen &= jnp.roll(segment_ids, distance, axis=1) == segment_ids  # [B, T]
        seen = jnp.where(is_seen.reshape(*is_seen.shape, *channels), earlier, 0)
        y += scale_channels(seen, kernel[-1 - distance])
    return y
