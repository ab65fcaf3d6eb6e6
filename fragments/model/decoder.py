"""Decoder: one block scanned over stacked layers."""

import dataclasses
import functools
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import layers, point, provide, setting, splice
from generator.language.roles import Embedding, Norm, PositiveInt, remat_policy, shard


class ModelConfig:
    """Sizes of the model, and how it computes: the settings that a model holds."""

    width: PositiveInt  # size of the residual stream
    layers: Annotated[int, 1, 10_000]  # number of blocks
    context_length: PositiveInt = 4096  # longest sequence to generate or serve, in tokens
    dtype: Literal["float32", "bfloat16"] = setting("dtype")  # of computation; parameters are always float32

    @property
    def model(self) -> "ModelConfig":
        """Returns the settings of the model alone."""
        return ModelConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(ModelConfig)})


class Decoder(nnx.Module):
    """Maps tokens to the logits of the next tokens."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        self.config = config.model
        self.embedding = Embedding(config, rngs)
        # stacked: each parameter of a layer has a leading axis
        for group in layers.groups:
            keys = jax.random.split(rngs.params(), group.count)
            group.stack = jax.vmap(lambda key: group.Block(config, nnx.Rngs(key)))(keys)
        self.norm = Norm(config.width, config.norm_epsilon)
        point("Decoder.parameters", config, rngs)

    def hidden(self, tokens: Array) -> Array:
        """Computes the residual stream after the last norm, [B, T, D]."""
        x = self.embedding(tokens, self.config.dtype)
        point("Decoder.embedded", x)
        x = shard(x, "batch", "sequence", "residual")

        if setting("unroll"):
            remat = functools.partial(jax.checkpoint, policy=remat_policy(self.config.remat))
        else:
            # prevent_cse: not needed in a scan, which keeps its forward and backward pass apart
            remat = functools.partial(jax.checkpoint, policy=remat_policy(self.config.remat), prevent_cse=False)
        for group in layers.groups:

            def block(x, layer: group.Block):
                point("Decoder.block", x)
                x = layer(x)
                return x, None

            with point("Decoder.scan", x, group, remat, block):
                if setting("unroll"):
                    # unrolled, as a loop would copy each layer's residuals into stacked arrays and back
                    x, _ = jax.lax.scan(remat(block), x, group.stack, unroll=True)
                else:
                    x, _ = jax.lax.scan(remat(block), x, group.stack)
        return self.norm(x)

    def __call__(self, tokens: Array) -> Array:
        """Computes logits [B, T, V] in fp32 from tokens [B, T] int32."""
        x = self.hidden(tokens)
        return self.embedding.logits(x, self.embedding.kernel())


@provide("Decoder.hidden", optional=True)
def positions(tokens) -> Array:
    return jnp.arange(tokens.shape[1])[None]  # [1, T]


@splice("hf.tensors")
def _():
    with point("hf.norm"):
        yield "norm.scale", "model.norm.weight", "d -> d"


@splice("hf.sizes")
def _():
    yield "hidden_size", "width"
    yield "num_hidden_layers", "layers"
    yield "max_position_embeddings", "context_length"
