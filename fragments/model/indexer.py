"""Sparse attention: an indexer ranks the keys before each token, which attends to the highest of them alone.

Source: DeepSeek-AI 2025, arXiv 2512.02556, section 2.1 and equation 4.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import emit, layers, point, proceed, requires, splice
from generator.language.roles import (
    Index,
    IndexedLatents,
    Linear,
    PositiveFloat,
    PositiveInt,
    attend_selected,
    attend_selected_latents,
    rotate,
)

requires("latent_attention", "low_rank_query", "attend_selected", "rope_interleaved")


class ModelConfig:
    index_heads: PositiveInt  # heads of an indexer
    index_size: PositiveInt  # size of a head of an indexer
    index_keys: PositiveInt  # keys that a token attends to


class TrainConfig:
    index_loss: PositiveFloat = 1.0  # weight of the loss of indexers, a mean over targets and layers


@splice("check_config.together")
def _(config, problems):
    if config.index_size < config.rope_size:
        problems.append(f"--index-size {config.index_size}: must be at least --rope-size, of which all is rotated")


class LayerNorm(nnx.Module):
    """Centres and divides by the standard deviation, in fp32, scales, and adds a bias."""

    def __init__(self, size: int, epsilon: float):
        self.scale = nnx.Param(jnp.ones(size), axes=("norm",))
        self.bias = nnx.Param(jnp.zeros(size), axes=("norm",))
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:
        y = x.astype(jnp.float32)
        y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
        return (y * self.scale + self.bias).astype(x.dtype)


def rotate_start(x: Array, angles: Array) -> Array:
    """Rotates the first P numbers of each head: x [B, T, N, H], angles [B, T, P/2]."""
    size = 2 * angles.shape[-1]
    first, rest = x[..., :size], x[..., size:]
    point("rotate_start.order", first, size)
    return jnp.concatenate([rotate(first, angles), rest], axis=-1)


class Indexer(nnx.Module):
    """Ranks keys for queries, by heads of its own, which learn to rank as attention's weights do."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, Q, J, size, std = config.width, config.query_rank, config.index_heads, config.index_size, config.init_std
        self.scale = (J * size) ** -0.5
        self.query = Linear("BTQ,QJI->BTJI", (Q, J, size), ("embed", "heads", "head_size"), std, rngs)
        self.key = Linear("BTD,DI->BTI", (D, size), ("embed", "head_size"), std, rngs)
        self.key_norm = LayerNorm(size, 1e-6)
        self.weight = Linear("BTD,DJ->BTJ", (D, J), ("embed", "heads"), std, rngs)

    def __call__(self, x: Array, query_latent: Array, angles: Array) -> Index:
        query = rotate_start(self.query(query_latent), angles)  # [B, T, J, I]
        with jax.default_matmul_precision("highest"):  # in fp32, as in the released code
            weight = self.scale * self.weight(x.astype(jnp.float32))  # [B, T, J]
        key = self.key_norm(self.key(x))  # [B, T, I]
        return Index(query, weight, rotate_start(key[:, :, None], angles)[:, :, 0])


def weighs_heads(name: str) -> bool:
    """Tells whether a parameter of this name weighs the heads of an indexer, in fp32."""
    return "indexer" in name and "weight" in name


@splice("Attention.parameters")
def _(self, config, rngs):
    self.index_keys = config.index_keys
    self.indexer = Indexer(config, rngs)


@splice("Attention.query_latent")
def _(self, x, q, angles):
    query_latent = self.query_norm(self.query_latent(x))  # [B, T, Q]
    q = self.query(query_latent)  # [B, T, N, H]
    # an indexer learns from its own loss alone, and nothing else from it
    index = self.indexer(jax.lax.stop_gradient(x), jax.lax.stop_gradient(query_latent), angles)


@splice("Attention.attend", after="pages")
def _(index_divergence):
    proceed()
    emit(index_divergence)


@splice("Attention.attend_heads")
def _(self, q, k, v, index, context):
    context, index_divergence = attend_selected(q, k, v, index, self.index_keys)  # [B, T, N, U], [B, T]


@splice("Attention.in_pages")
def _(cache, index):
    cache = cache._replace(value=IndexedLatents(cache.value, index.key[:, :, None]))


@splice("Attention.attend_latents")
def _(self, q, cache, pages, kernel, positions, index, context):
    context = attend_selected_latents(q, index, self.index_keys, cache, pages, kernel, positions)
    index_divergence = None  # of training alone


@splice("with_matrices_in.fp32")
def _(name, is_used_in_fp32):
    is_used_in_fp32 = is_used_in_fp32 or weighs_heads(name)


@splice("load_to_serve.matrix", optional=True)
def _(name, is_matrix):
    is_matrix = is_matrix and not weighs_heads(name)


@splice("test_train.added", after="mtp_loss", optional=True)
def _(config):
    config = dataclasses.replace(config, index_loss=1e-20)  # an MTP layer reads targets, which the test changes


@splice("flops.attention")
def _(parameters, attention, config):
    proceed()
    indexer = config.index_heads * (config.query_rank * config.index_size + config.width)
    indexer += config.width * config.index_size
    parameters += layers.count * indexer
    attention += 6 * config.index_heads * config.index_size * layers.count * config.sequence_length


@splice("flops.keys")
def _(keys, config):
    with point("flops.selected_keys", config):
        seen = min(config.index_keys, config.sequence_length)
        # twice the mean number of keys, as full FLOPs count the future
        keys = layers.count * seen * (2 - seen / config.sequence_length)


@splice("loss.terms", after="load_balance expert_load router_z mtp_loss")
def _(total, sums, batch, index_divergence, config):
    of_layers = [x.reshape(-1, *batch["weights"].shape) for x in jax.tree.leaves(index_divergence)]  # [L, B, T]
    sums["index_divergence"] = jnp.sum(jnp.concatenate(of_layers).mean(axis=0) * batch["weights"])
    total += config.index_loss * sums["index_divergence"]


@splice("train_step.metrics")
def _(metrics, sums, targets):
    metrics["train/index_divergence"] = sums["index_divergence"] / targets


@splice("hf.layer_tensors")
def _():
    yield "attention.indexer.query.kernel", "model.layers.{}.self_attn.indexer.wq_b.weight", "q j i -> (j i) q"
    yield "attention.indexer.key.kernel", "model.layers.{}.self_attn.indexer.wk.weight", "d i -> i d"
    yield "attention.indexer.key_norm.scale", "model.layers.{}.self_attn.indexer.k_norm.weight", "i -> i"
    yield "attention.indexer.key_norm.bias", "model.layers.{}.self_attn.indexer.k_norm.bias", "i -> i"
    yield "attention.indexer.weight.kernel", "model.layers.{}.self_attn.indexer.weights_proj.weight", "d j -> j d"


@splice("hf.sizes")
def _():
    yield "index_n_heads", "index_heads"
    yield "index_head_dim", "index_size"
    yield "index_topk", "index_keys"
