"""A head of rewards, in place of that of the vocabulary: a reward model.

Source: Ouyang et al. 2022, arXiv 2203.02155, section 3.5.
"""

import jax.numpy as jnp
import pytest
from flax import nnx
from jax import Array

from generator.language import excludes, splice
from generator.language.roles import Decoder, product

excludes("pages")  # a reward model generates nothing
excludes("head_bias")  # of a head that is not there


def token_rewards(model: Decoder, x: Array) -> Array:
    """Returns the rewards [B, T] in fp32 of the text up to each token, given x [B, T, D]."""
    return product("BTD,DR->BTR", x, model.score.get_value(), "float32")[..., 0]


@splice("Decoder.parameters")
def _(self, config):
    self.score = nnx.Param(jnp.zeros((config.width, 1)), axes=("embed", None))


@splice("Embedding.own_head", optional=True)
def _():
    pass


@splice("Embedding.own_kernel", optional=True)
def _(self, kernel):
    kernel = self.table.T


@splice("test_train.by_heart", "test_train.precision", "test_llama.logits", "test_llama.written", optional=True)
def _():
    pytest.skip("a reward model is no language model")
