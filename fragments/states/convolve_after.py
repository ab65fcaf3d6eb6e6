"""A causal convolution that goes on after tokens of an earlier step."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import requires

requires("states")


def convolve_after(before: Array, x: Array, kernel: Array, counts: Array) -> tuple[Array, Array]:
    """Convolves each channel over tokens, as `convolve` does in training.

    Args:
        before: [B, S - 1, ...], the inputs before those of this step.
        x: [B, T, ...].
        kernel: [S, ...].
        counts: [B, C], tokens of this step.

    Returns:
        Sums [B, T, ...], and the last inputs [B, C, S - 1, ...] after so many of them.
    """
    S, T = kernel.shape[0], x.shape[1]
    inputs = jnp.concatenate([before.astype(x.dtype), x], axis=1)  # [B, S - 1 + T, ...]
    kernel = kernel.astype(x.dtype)
    y = sum(inputs[:, i : i + T] * kernel[i] for i in reversed(range(S)))  # in the order of `convolve`
    last = counts[:, :, None] + jnp.arange(S - 1)  # [B, C, S - 1]
    return y, jax.vmap(lambda inputs, last: inputs[last])(inputs, last)
