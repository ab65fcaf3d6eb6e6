"""Multi-token prediction: layers after the last, each for one token further; logits do not need them.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 2.2; concatenated in the order of the released code.
"""

import dataclasses
import sys
from typing import Annotated

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import layers, splice
from generator.language.roles import Linear, Norm

layers.further("mtp", "config.mtp_layers")


class ModelConfig:
    mtp_layers: Annotated[int, 0, 100] = 1  # layers of multi-token prediction, each for one token further


class MTPLayer(nnx.Module):
    """Predicts one token further than the layers before it, from their output and the token they predict."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D = config.width
        self.token_norm = Norm(D, config.norm_epsilon)
        self.hidden_norm = Norm(D, config.norm_epsilon)
        self.join = Linear("BTJ,JD->BTD", (2 * D, D), ("joined", "embed"), config.init_std, rngs)
        layers.last.module = layers.last.Block(config, rngs)
        self.norm = Norm(D, config.norm_epsilon)

    def __call__(self, x: Array, token: Array) -> Array:
        """Maps the normed x and the embedding of the next token, both [B, T, D], to a normed [B, T, D]."""
        x = self.join(jnp.concatenate([self.token_norm(token), self.hidden_norm(x)], axis=-1))
        x = layers.last.module(x)
        return self.norm(x)


@splice("Decoder.parameters", before="lora")
def _(self, config, rngs):
    mtp_keys = jax.random.split(rngs.params(), config.mtp_layers)
    self.mtp = jax.vmap(lambda key: MTPLayer(config, nnx.Rngs(key)))(mtp_keys)


@splice("flops")
def _(parameters, config):
    # each joins two vectors and has logits of its own
    parameters += config.mtp_layers * config.width * (2 * config.width + config.vocab_size)


@splice("hf.layer_tensors")
def _():
    yield "token_norm.scale", "model.layers.{}.enorm.weight", "d -> d"
    yield "hidden_norm.scale", "model.layers.{}.hnorm.weight", "d -> d"
    yield "join.kernel", "model.layers.{}.eh_proj.weight", "j d -> d j"
    yield "norm.scale", "model.layers.{}.shared_head.norm.weight", "d -> d"


@splice("hf.buffers")
def _():
    yield ".embed_tokens.weight"  # MTP layers' copies, here and below, of what they share with the model
    yield ".shared_head.head.weight"


@splice("hf.sizes")
def _():
    yield "num_nextn_predict_layers", "mtp_layers"


@splice("hf.complete")
def _(hf):
    hf.setdefault("num_nextn_predict_layers", 1)


@splice("load_hf.tensors")
def _(config, tensors, hf_dir):
    if config.mtp_layers and not any(name.endswith(".eh_proj.weight") for name in tensors):
        config = dataclasses.replace(config, mtp_layers=0)  # transformers counts them in config.json, and saves none
        print(f"{hf_dir}: no tensor is of an MTP layer: the model has none", file=sys.stderr)


@splice("exported_config.config", optional=True)
def _(config):
    config = dataclasses.replace(config, mtp_layers=0)  # transformers does not save MTP layers
