"""A bias of the output head.

Source: Wolf et al. 2020, arXiv 1910.03771 (the released code of Phi).
"""

import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec

from generator.language import proceed, splice
from generator.language.roles import RULES


@splice("Embedding.parameters")
def _(self, V):
    self.head_bias = nnx.Param(jnp.zeros(V), axes=("vocab",))


@splice("Embedding.head", after="untied_head")
def _(self, kernel):
    proceed()
    kernel = kernel, self.head_bias[...]  # [D, V], [V]


@splice("Embedding.product", after="head_gpu")
def _(kernel, logits):
    kernel, bias = kernel
    proceed()
    logits = logits + bias


@splice("score.gather")
def _(kernel):
    kernel, bias = kernel
    proceed()
    kernel = kernel, bias


@splice("score.specs")
def _(specs, vocab, rows):
    head = PartitionSpec(RULES["embed"], RULES["vocab"]), vocab
    specs = head, vocab, rows, rows


@splice("hf.tensors", after="embedding untied_head")
def _():
    yield "embedding.head_bias", "lm_head.bias", "v -> v"
