"""Biases in the linear maps of a feed-forward without a gate.

Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training" (its released code).
"""

import jax.numpy as jnp
from flax import nnx

from generator.language import proceed, requires, splice
from generator.language.roles import add_bias

requires("gelu_mlp")


@splice("FeedForward.parameters")
def _(self, D, F):
    # one named axis, like vectors: no weight decay
    self.up_bias = nnx.Param(jnp.zeros(F), axes=("mlp",))
    self.down_bias = nnx.Param(jnp.zeros(D), axes=("embed",))


@splice("FeedForward.activation")
def _(self, up):
    up = add_bias(up, self.up_bias[...])
    proceed()


@splice("FeedForward.output")
def _(self, y):
    y = add_bias(y, self.down_bias[...])


@splice("hf.mlp")
def _():
    proceed()
    yield "mlp.up_bias", "model.layers.{}.mlp.up_proj.bias", "f -> f"
    yield "mlp.down_bias", "model.layers.{}.mlp.down_proj.bias", "d -> d"
