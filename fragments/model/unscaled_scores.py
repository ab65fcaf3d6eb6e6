"""Attention scores that nothing divides, as norms of queries and keys bound them.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

import jax.numpy as jnp

from generator.language import requires, splice

requires("qk_norm")


@splice("Attention.heads", after="qk_norm rope")
def _(q):
    q = (q.astype(jnp.float32) * q.shape[-1] ** 0.5).astype(q.dtype)  # attend divides by that root
