"""Layer norms on query and key heads, each with a scale of its own.

Source: Bellagente et al. 2024, arXiv 2402.17834 (its released code); Dehghani et al. 2023, arXiv 2302.05442.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import excludes, splice

excludes("qk_norm")


class HeadNorm(nnx.Module):
    """Normalises each head in fp32, and scales it."""

    def __init__(self, heads: int, size: int, epsilon: float):
        self.scale = nnx.Param(jnp.ones((heads, size)), axes=("head_size",))  # one named axis: no weight decay
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:
        y = x.astype(jnp.float32)  # [B, T, N, H]
        y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
        return (y * self.scale).astype(x.dtype)


@splice("Attention.parameters")
def _(self, config):
    self.query_norm = HeadNorm(config.heads, config.head_size, config.norm_epsilon)
    self.key_norm = HeadNorm(config.kv_heads, config.head_size, config.norm_epsilon)


@splice("Attention.heads", before="rope", after="query_key_value_bias")
def _(self, q, k):
    q, k = self.query_norm(q), self.key_norm(k)


@splice("hf.layer_tensors")
def _():
    yield "attention.query_norm.scale", "model.layers.{}.self_attn.q_norm.weight", "n h -> n h"
    yield "attention.key_norm.scale", "model.layers.{}.self_attn.k_norm.weight", "n h -> n h"
