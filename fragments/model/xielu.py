"""xIELU: quadratic above zero, an exponential below, each with a learned factor.

Source: Huang and Schlag 2024, arXiv 2411.13010, section 3.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import splice

SLOPE = 0.5  # of xIELU at zero
HIGHEST = -1e-6  # exponent: the exponential of a large number would be infinite, and its gradient NaN


def xielu(x: Array, above: Array, below: Array) -> Array:
    """Applies xIELU in fp32: softplus of `above` and `below` [1] are the factors above and below zero."""
    y = x.astype(jnp.float32)
    quadratic = jax.nn.softplus(above) * y * y
    exponential = (SLOPE + jax.nn.softplus(below)) * (jnp.expm1(jnp.minimum(y, HIGHEST)) - y)
    return (jnp.where(y > 0, quadratic, exponential) + SLOPE * y).astype(x.dtype)


@splice("FeedForward.parameters")
def _(self):
    self.above = nnx.Param(jnp.log(jnp.expm1(jnp.full(1, 0.8))), axes=(None,))
    self.below = nnx.Param(jnp.log(jnp.expm1(jnp.full(1, 0.8 - SLOPE))), axes=(None,))


@splice("FeedForward.activation")
def _(self, up, h):
    h = xielu(up, self.above[...], self.below[...])


@splice("hf.layer_tensors")
def _():
    yield "mlp.above", "model.layers.{}.mlp.act_fn.alpha_p", "a -> a"
    yield "mlp.below", "model.layers.{}.mlp.act_fn.alpha_n", "a -> a"
