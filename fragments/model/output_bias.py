"""Bias of the output projection of attention."""

import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import add_bias


@splice("Attention.parameters")
def _(self, config):
    self.out_bias = nnx.Param(jnp.zeros(config.width), axes=("embed",))


@splice("Attention.output")
def _(self, y):
    y = add_bias(y, self.out_bias[...])


@splice("hf.layer_tensors")
def _():
    yield "attention.out_bias", "model.layers.{}.self_attn.o_proj.bias", "d -> d"
