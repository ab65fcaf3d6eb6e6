"""Queries and keys of length 1.

Source: Yang et al. 2024, arXiv 2412.06464, section 3.4.
"""

import jax
import jax.numpy as jnp
from jax import Array


def unit(x: Array) -> Array:
    """Scales heads [..., H] to length 1, in fp32."""
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)
