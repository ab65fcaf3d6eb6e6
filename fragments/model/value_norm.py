"""Norm without parameters on value heads.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import splice


def normalize_values(v: Array, epsilon: float) -> Array:
    """Divides each head by its root mean square, in fp32. v [B, T, K, H]."""
    y = v.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + epsilon)).astype(v.dtype)


@splice("Attention.parameters")
def _(self, config):
    self.norm_epsilon = config.norm_epsilon


@splice("Attention.heads")
def _(self, v):
    v = normalize_values(v, self.norm_epsilon)
