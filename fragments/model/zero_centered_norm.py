"""Zero-centred norms: the parameter is the scale minus 1.

Source: Gemma Team 2024, arXiv 2403.08295 (its released code).
"""

import jax.numpy as jnp
from flax import nnx

from generator.language import splice


@splice("Norm.parameters")
def _(self, size):
    self.scale = nnx.Param(jnp.zeros(size), axes=("norm",))


@splice("Norm.scaled")
def _(self, y):
    y = y * (1 + self.scale)
