"""Embeddings multiplied by the root of their width, which is rounded to bf16 in every dtype.

Source: De et al. 2024, arXiv 2402.19427, section 2.1 (its released code).
"""

import jax.numpy as jnp

from generator.language import splice


@splice("Embedding.vectors")
def _(x):
    x = x * jnp.asarray(x.shape[-1] ** 0.5, jnp.bfloat16).astype(x.dtype)
