"""Biases in the linear maps of a feed-forward with a gate.

Source: De et al. 2024, arXiv 2402.19427, section 2.2 (its released code).
"""

import jax.numpy as jnp
from flax import nnx

from generator.language import proceed, requires, splice
from generator.language.roles import add_bias

requires("swiglu")


@splice("FeedForward.parameters")
def _(self, F):
    # one named axis, like vectors: no weight decay
    self.gate_bias = nnx.Param(jnp.zeros(F), axes=("mlp",))
    self.up_bias = nnx.Param(jnp.zeros(F), axes=("mlp",))


@splice("Block.parameters")
def _(self, config):
    self.mlp_bias = nnx.Param(jnp.zeros(config.width), axes=("embed",))  # of what the feed-forward adds


@splice("FeedForward.activation", after="geglu")
def _(self, gate, up):
    gate, up = add_bias(gate, self.gate_bias[...]), add_bias(up, self.up_bias[...])
    proceed()


@splice("Block.mlp")
def _(self, h):
    h = add_bias(h, self.mlp_bias[...])


@splice("hf.mlp")
def _():
    proceed()
    yield "mlp.gate_bias", "model.layers.{}.mlp.gate_proj.bias", "f -> f"
    yield "mlp.up_bias", "model.layers.{}.mlp.up_proj.bias", "f -> f"
    yield "mlp_bias", "model.layers.{}.mlp.down_proj.bias", "d -> d"


@splice("hf.mlp_bias")
def _():
    yield "mlp_bias", True, "a feed-forward without biases"
