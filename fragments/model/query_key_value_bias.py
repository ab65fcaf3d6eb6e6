"""Biases on query, key and value heads.

Source: Bai et al. 2023, arXiv 2309.16609, section 2.3.
"""

import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import add_bias


@splice("Attention.parameters")
def _(self, config):
    # one named axis, like vectors: no weight decay
    self.query_bias = nnx.Param(jnp.zeros((config.heads, config.head_size)), axes=("head_size",))
    self.key_bias = nnx.Param(jnp.zeros((config.kv_heads, config.head_size)), axes=("head_size",))
    self.value_bias = nnx.Param(jnp.zeros((config.kv_heads, config.head_size)), axes=("head_size",))


@splice("Attention.heads", before="rope qk_norm attention_temperature")
def _(self, q, k, v):
    q = add_bias(q, self.query_bias[...])
    k = add_bias(k, self.key_bias[...])
    v = add_bias(v, self.value_bias[...])


@splice("hf.layer_tensors")
def _():
    yield "attention.query_bias", "model.layers.{}.self_attn.q_proj.bias", "n h -> (n h)"
    yield "attention.key_bias", "model.layers.{}.self_attn.k_proj.bias", "k h -> (k h)"
    yield "attention.value_bias", "model.layers.{}.self_attn.v_proj.bias", "k h -> (k h)"


@splice("hf.attention_bias")
def _():
    yield "attention_bias", True, "an attention without biases"
