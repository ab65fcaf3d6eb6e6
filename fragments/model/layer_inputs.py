"""An input for each layer: embeddings of the token, and projections of its vector, that a layer gates and adds.

Source: Google DeepMind 2025, Gemma 3n (its released code).
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from generator.language import layers, provide, requires, splice
from generator.language.roles import Linear, Norm, PositiveInt, shard

requires("scaled_embedding")


class ModelConfig:
    layer_input_size: PositiveInt  # size of the vector that each layer takes of a token


class LayerInputs(nnx.Module):
    """Makes the inputs of all layers: P is their size."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        V, D, L, P = config.vocab_size, config.width, config.layers, config.layer_input_size
        table = config.init_std * jax.random.normal(rngs.params(), (V, L, P))
        self.table = nnx.Param(table, axes=("vocab", None, "embed"))
        self.projection = Linear("BTD,DLP->BTLP", (D, L, P), ("embed", None, None), config.init_std, rngs)
        self.norm = Norm(P, config.norm_epsilon)

    def __call__(self, tokens: Array, x: Array) -> Array:
        """Maps tokens [B, T] and their vectors [B, T, D] to [B, T, L, P]."""
        embedded = self.table[tokens].astype(x.dtype)  # cast after the lookup, as in Embedding
        embedded = embedded * embedded.shape[-1] ** 0.5
        projected = self.norm(self.projection(x) * x.shape[-1] ** -0.5)
        return (projected + embedded) * 2**-0.5


def by_layer(x: Array, config: ModelConfig) -> Array | tuple:
    """Takes inputs [B, T, L, P] apart: for each stack of layers, those of its layers, [layers, B, T, P]."""
    x = jnp.moveaxis(x, 2, 0)  # [L, B, T, P]
    return layers.stacked(lambda group: x[np.array(group.numbers)])


@splice("Decoder.parameters", before="lora")
def _(self, config, rngs):
    self.layer_inputs = LayerInputs(config, rngs)


@provide("Decoder.hidden", per_layer=True)
def layer_input(self, tokens, config) -> Array:
    return by_layer(self.layer_inputs(tokens, self.embedding(tokens, config.dtype)), config)


@splice("Block.parameters")
def _(self, config, rngs):
    P = config.layer_input_size
    self.input_gate = Linear("BTD,DP->BTP", (config.width, P), ("embed", "mlp"), config.init_std, rngs)
    self.input_out = Linear("BTP,PD->BTD", (P, config.width), ("mlp", "embed"), config.init_std, rngs)
    self.input_post_norm = Norm(config.width, config.norm_epsilon)


@splice("Block.mlp", after="post_norms", before="layer_scalar")
def _(self, x, h, layer_input):
    x = shard(x + h, "batch", "sequence", "residual")
    gated = jax.nn.gelu(self.input_gate(x)) * layer_input  # [B, T, P]
    h = self.input_post_norm(self.input_out(gated))


@splice("flops", after="swiglu experts")
def _(parameters, config):
    parameters += 3 * layers.count * config.width * config.layer_input_size


@splice("hf.tensors")
def _():
    yield "layer_inputs.table", "model.embed_tokens_per_layer.weight", "v l p -> v (l p)"
    yield "layer_inputs.projection.kernel", "model.per_layer_model_projection.weight", "d l p -> (l p) d"
    yield "layer_inputs.norm.scale", "model.per_layer_projection_norm.weight", "p -> p"


@splice("hf.layer_tensors")
def _():
    yield "input_gate.kernel", "model.layers.{}.per_layer_input_gate.weight", "d p -> p d"
    yield "input_out.kernel", "model.layers.{}.per_layer_projection.weight", "p d -> d p"
    yield "input_post_norm.scale", "model.layers.{}.post_per_layer_input_norm.weight", "d -> d"


@splice("hf.sizes")
def _():
    yield "hidden_size_per_layer_input", "layer_input_size"


@splice("hf.structure")
def _(config):
    yield "vocab_size_per_layer_input", config.vocab_size, "a table of the tokens of the vocabulary"
