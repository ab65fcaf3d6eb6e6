"""Output head with weights of its own."""

import jax
from flax import nnx

from generator.marks import splice


@splice("Embedding.parameters")
def _(self, config, rngs):
    shape = (config.width, config.vocab_size)
    self.head = nnx.Param(config.init_std * jax.random.normal(rngs.params(), shape), axes=("embed", "vocab"))


@splice("Embedding.head")
def _(self, kernel):
    kernel = self.head  # [D, V]
