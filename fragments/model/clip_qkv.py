"""Queries, keys and values clipped to a range.

Source: Groeneveld et al. 2024, arXiv 2402.00838, table 6 (as in MPT-7B).
"""

import jax.numpy as jnp

from generator.language import splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    clip_qkv: PositiveFloat  # largest absolute value of an element of a query, a key or a value


@splice("Attention.parameters")
def _(self, config):
    self.clip = config.clip_qkv


@splice("Attention.heads", before="rope", after="qk_norm")
def _(self, q, k, v):
    q, k, v = (jnp.clip(x, -self.clip, self.clip) for x in (q, k, v))


@splice("hf.sizes")
def _():
    yield "clip_qkv", "clip_qkv"
