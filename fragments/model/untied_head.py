"""Untied output head."""

import jax
from flax import nnx

from generator.language import point, splice
from generator.language.roles import transpose


@splice("Embedding.parameters")
def _(self, config, rngs, V, D):
    with point("Embedding.own_head"):
        self.head = nnx.Param(config.init_std * jax.random.normal(rngs.params(), (D, V)), axes=("embed", "vocab"))


@splice("Embedding.head")
def _(self, kernel):
    with point("Embedding.own_kernel"):
        kernel = self.head[...]


@splice("hf.tensors", after="embedding")
def _():
    yield "embedding.head", "lm_head.weight", "d v -> v d"


@splice("hf.tied")
def _():
    yield "tie_word_embeddings", False, "tied embeddings (without model/untied_head)"


@splice("load_hf.tied")
def _():
    pass


@splice("transpose_kernels.head", optional=True)
def _(model):
    transpose(model.embedding.head, 1)
