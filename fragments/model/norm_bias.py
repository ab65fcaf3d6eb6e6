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


@splice("hf.norm")
def _():
    proceed()
    yield "norm.bias", "model.norm.bias", "d -> d"


@splice("hf.attention_norm", optional=True)
def _():
    proceed()
    yield "attention_norm.bias", "model.layers.{}.input_layernorm.bias", "d -> d"


@splice("hf.mlp_norm", optional=True)
def _():
    proceed()
    yield "mlp_norm.bias", "model.layers.{}.post_attention_layernorm.bias", "d -> d"


@splice("hf.parallel_norm", optional=True)
def _():
    proceed()
    yield "norm.bias", "model.layers.{}.input_layernorm.bias", "d -> d"
