"""Learned position embedding.

Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 4.1.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import point, splice
from generator.language.roles import Config


@splice("Embedding.parameters")
def _(self, config, rngs):
    with point("Embedding.position_rows", config):
        rows = config.context_length
    shape = (rows, config.width)
    self.positions = nnx.Param(config.init_std * jax.random.normal(rngs.params(), shape), axes=("position", "embed"))


@splice("Embedding.vectors")
def _(self, x, positions):
    with point("Embedding.position_row", positions):
        row = positions
    x = x + jnp.take(self.positions[...], row, axis=0).astype(x.dtype)  # NaN past the longest sequence


@splice("check_config.together")
def _(config, problems):
    if config.sequence_length > config.context_length:
        most = f"must be at most --context-length {config.context_length}, as positions are learned"
        problems.append(f"--sequence-length {config.sequence_length}: {most}")


@splice("hf.fields")
def _(fields):
    fields["sequence_length"] = min(Config.sequence_length, fields["context_length"])


@splice("hf.tensors")
def _():
    yield "embedding.positions", "transformer.wpe.weight", "t d -> t d"
