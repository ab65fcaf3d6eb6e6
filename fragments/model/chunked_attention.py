"""Chunked attention: a token sees only the earlier tokens of its own chunk.

Source: Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence (its released code).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from generator.language import layers, proceed, provide, setting, splice
from generator.language.roles import UNSEEN, PositiveInt

EVERYTHING = 2**30  # the chunk of a layer with full attention


class ModelConfig:
    chunk_size: PositiveInt  # positions of a chunk; chunks are counted from the start of each document


@provide("Decoder.hidden")
def chunk_ids(tokens, positions, segment_ids, config) -> Array:
    segments = 1 if segment_ids is None else segment_ids
    # numbered backwards in each segment, so that those of padding are at most 0
    last = segments * (tokens.shape[1] // config.chunk_size + 1)
    return jnp.broadcast_to(last - positions // config.chunk_size, tokens.shape)  # [B, T]


def window_layers(config: ModelConfig) -> np.ndarray:
    """Returns whether each layer is chunked, [L], in the order of the scans."""
    counts = jax.tree.leaves(layers.stacked(lambda group: group.count))
    chunks = jax.tree.leaves(layers.stacked(lambda group: group.chunk))
    return np.repeat(np.array(chunks) < EVERYTHING, counts)


def window_size(config: ModelConfig) -> int:
    """Returns how many tokens a token can see in a chunked layer, including itself."""
    return config.chunk_size


def window_start(config: ModelConfig, position: int) -> int:
    """Returns the first position that a token at `position` sees in a chunked layer."""
    return position // config.chunk_size * config.chunk_size


@splice("Attention.parameters")
def _(self, chunk):
    self.chunk = chunk


@provide("Attention.__call__")
def chunk(self) -> int:
    return self.chunk


@splice("attend_cached.mask")
def _(visible, distance, positions, chunk):
    position = positions[:, None, :, None]
    visible = visible & ((position - distance) // chunk == position // chunk)


@splice("attend_cached.loop", optional=True)
def _(add_block, sums, blocks, before, n, pages, total, context, chunk):
    if setting("read_to_the_end"):
        proceed()
    else:
        oldest = jnp.min(before, where=before >= 0, initial=UNSEEN) // chunk * chunk  # first place in sight
        total, context = jax.lax.fori_loop(oldest // (n * pages.key.shape[2]), blocks, add_block, sums)[1:]


@splice("attend_cached.ends", optional=True)
def _(cached, before, S, ends, chunk):
    ends = jnp.cumsum(cached - jnp.maximum(before, 0) // chunk * chunk // S)  # without pages that no token sees


@splice("attend_token.first", optional=True)
def _(first, before, chunk):
    first = jnp.maximum(first, before // chunk * chunk)


@splice("attend_splash.causal", optional=True)
def _(mask, T, padding, chunk):
    # skips blocks that are a chunk or more in the past; the segments do the rest
    mask = splash.LocalMask((T + padding, T + padding), (chunk - 1, 0), offset=0)


@splice("test_pages_kernel.run", optional=True)
def _(run):
    run = functools.partial(run, chunk=100)


@splice("test_attention.run", optional=True)
def _(run):
    if setting("target") == "tpu":  # elsewhere chunks are merely segments
        run = functools.partial(run, chunk=EVERYTHING)


def chunked_keys(length: int, chunk: int) -> float:
    """Returns twice the mean number of keys of a query, as the full FLOPs convention counts future keys too."""
    return (length // chunk * chunk**2 + (length % chunk) ** 2) / length


@splice("flops.keys")
def _(keys, config):
    keys = layers.sum(lambda layer: chunked_keys(config.sequence_length, layer.chunk))


@splice("hf.sizes")
def _():
    yield "attention_chunk_size", "chunk_size"
