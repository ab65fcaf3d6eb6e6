"""Biases in all linear maps."""

import jax.numpy as jnp
from flax import nnx

from generator.language import proceed, splice
from generator.language.roles import add_bias


@splice("Linear.parameters")
def _(self, equation, shape, axes):
    letters, y = equation.split(",")[1].split("->")
    sizes = [size for letter, size in zip(letters, shape, strict=True) if letter in y]
    self.bias = nnx.Param(jnp.zeros(sizes), axes=axes[-1:])  # one named axis, like a vector: no weight decay


@splice("Linear.output")
def _(self, y):
    proceed()
    y = add_bias(y, self.bias[...])
