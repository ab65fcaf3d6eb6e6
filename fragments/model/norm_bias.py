"""Biases in all norms."""

import jax.numpy as jnp
from flax import nnx

from generator.language import proceed, splice


@splice("Norm.parameters")
def _(self, size):
    proceed()
    self.bias = nnx.Param(jnp.zeros(size), axes=("norm",))


@splice("Norm.scaled")
def _(self, y):
    proceed()
    y = y + self.bias
