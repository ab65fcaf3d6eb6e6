"""A constant of each layer, by which its output is multiplied.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import splice


@splice("Block.parameters")
def _(self):
    self.scalar = nnx.Param(jnp.ones(1), axes=(None,))  # of the checkpoint: it is not trained


@splice("Block.mlp", after="post_norms")
def _(self, x, h):
    scalar = jax.lax.stop_gradient(self.scalar[...]).astype(x.dtype)
    x = scalar * x
    h = scalar * h


@splice("hf.layer_tensors")
def _():
    yield "scalar", "model.layers.{}.layer_scalar", "one -> one"
