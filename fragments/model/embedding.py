"""Token embedding, whose transpose is the output head."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from generator.language import point, provide, splice
from generator.language.roles import InputError, PositiveInt, hf_tensors, product


class ModelConfig:
    vocab_size: PositiveInt  # tokens in the vocabulary


class Embedding(nnx.Module):
    """Maps tokens to vectors, and vectors to logits."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        V, D = config.vocab_size, config.width
        self.table = nnx.Param(config.init_std * jax.random.normal(rngs.params(), (V, D)), axes=("vocab", "embed"))
        point("Embedding.parameters", config, rngs, V, D)

    def __call__(self, tokens: Array, dtype: str) -> Array:
        """Looks up tokens [B, T]: [B, T, D]."""
        x = self.table[tokens].astype(dtype)  # cast after the lookup: the table's gradient is summed in fp32
        point("Embedding.vectors", x)
        return x

    def kernel(self) -> Array:
        """Returns the kernel [D, V] of the output head."""
        with point("Embedding.head"):
            kernel = self.table.T
        return kernel

    def logits(self, x: Array, kernel: Array) -> Array:
        """Computes logits [B, T, V] in fp32 from x [B, T, D] and kernel [D, V]."""
        with point("Embedding.logits"):
            with point("Embedding.product", x, kernel):
                logits = product("BTD,DV->BTV", x, kernel, "float32")
        return logits


@provide("Embedding.logits", optional=True)
def vocabulary(kernel) -> Array:
    return jnp.arange(kernel.shape[1])  # tokens of the logits; a device may hold only a part of the kernel


@splice("hf.tensors")
def _():
    with point("hf.embedding"):
        yield "embedding.table", "model.embed_tokens.weight", "v d -> v d"


@splice("hf.sizes")
def _():
    yield "vocab_size", "vocab_size"


@splice("hf.complete")
def _(hf):
    hf.setdefault("tie_word_embeddings", False)


@splice("hf.structure")
def _():
    with point("hf.tied"):
        yield "tie_word_embeddings", True, "an untied head (model/untied_head)"


@splice("load_hf.tensors")
def _(tensors, hf_dir):
    with point("load_hf.tied", tensors, hf_dir):
        table = {parameter: name for parameter, name, _ in hf_tensors()}["embedding.table"]
        head = tensors.pop("lm_head.weight", None)  # some files hold a copy
        if head and table in tensors and not np.array_equal(head[...], tensors[table][...]):
            raise InputError(f"{hf_dir}: lm_head.weight is not {table}, though config.json says that they are tied")
