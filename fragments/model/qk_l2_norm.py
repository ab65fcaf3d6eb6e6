"""Norm without parameters on query and key heads, after the rotation.

Source: Henry et al. 2020, arXiv 2010.04245; as in the released code of Llama 4.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import splice


def normalize_heads(x: Array, epsilon: float) -> Array:
    """Divides each head by its root mean square, in fp32. x [B, T, N, H]."""
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + epsilon)).astype(x.dtype)


@splice("Attention.parameters")
def _(self, config):
    self.norm_epsilon = config.norm_epsilon


@splice("Attention.heads", after="rope")
def _(self, q, k):
    q, k = normalize_heads(q, self.norm_epsilon), normalize_heads(k, self.norm_epsilon)


@splice("hf.qk_l2_norm", optional=True)
def _():
    yield "use_qk_norm", True, "heads as they are, by leaving model/qk_l2_norm out,"
