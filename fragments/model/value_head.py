"""A head of values beside that of the vocabulary: a critic that shares all layers with the policy.

Source: Schulman et al. 2017, arXiv 1707.06347, section 3 (parameters that policy and value function share).
"""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import excludes, splice
from generator.language.roles import Decoder, product

excludes("lora")  # which trains nothing but adapters


def token_values(model: Decoder, x: Array) -> Array:
    """Returns the values [B, T] in fp32, the rewards that are expected after each token, given x [B, T, D]."""
    return product("BTD,DV->BTV", x, model.value.get_value(), "float32")[..., 0]


@splice("Decoder.parameters")
def _(self, config):
    self.value = nnx.Param(jnp.zeros((config.width, 1)), axes=("embed", None))


@splice("open_hf_model.arrays")
def _(arrays):
    arrays["value"] = jnp.zeros(arrays["value"].shape)


@splice("save_hf.model")
def _(model):
    model = nnx.clone(model)
    del model.value  # a checkpoint is one of the policy


@splice("random_model.made", optional=True)
def _(random):
    random.value.set_value(jnp.zeros(random.value.shape))  # as an export has no values


@splice("test_huggingface.parameters", optional=True)
def _(arrays):
    del arrays["value"]
