"""Attention sinks: a learned logit for each head, which takes part in the softmax and has no value.

Source: OpenAI 2025, arXiv 2508.10925, section 2.2; Xiao et al. 2023, arXiv 2309.17453, section 3.3.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from generator.language import excludes, provide, splice
from generator.language.roles import RULES

excludes("attend_cudnn")  # its kernel has no sinks, and no gradient of its logsumexp


@splice("Attention.parameters")
def _(self, config):
    self.sinks = nnx.Param(jnp.zeros(config.heads), axes=("heads",))


@provide("Attention.__call__")
def sinks(self) -> Array:
    return self.sinks[...]  # [N]


@splice("attend.highest", "attend_cached.highest", optional=True)
def _(highest, sinks):
    highest = jnp.maximum(highest, jax.lax.stop_gradient(sinks)[:, None, None])


@splice("attend.total", "attend_cached.total", optional=True)
def _(total, highest, sinks):
    total = total + jnp.exp(sinks[:, None, None] - highest)


@splice("attend_tiles.context", optional=True)
def _(attend_tiles, q, k, v, segment_ids, context, sinks):
    context, score_sums = attend_tiles(q, k, v, segment_ids)
    context = context * jax.nn.sigmoid(score_sums - sinks[:, None, None]).astype(context.dtype)  # less the sink's share


@splice("attend_cached.start", optional=True)
def _(highest, total, sinks):
    highest = jnp.broadcast_to(sinks[:, None, None].astype(jnp.float32), highest.shape)
    total = jnp.ones_like(total)  # the sink's share, which has no value


def local_sinks(sinks: Array, heads: int) -> Array:
    """Returns the sinks of this device's heads, in a shard_map over heads."""
    if len(sinks) == heads:
        return sinks
    return jax.lax.dynamic_slice_in_dim(sinks, jax.lax.axis_index(RULES["heads"]) * heads, heads)


@splice("attend_splash.run", optional=True)
def _(kernel, q, k, v, segments, context, sinks):
    row_sinks = jnp.broadcast_to(local_sinks(sinks, q.shape[1]), q.shape[:2])  # [B, N]: sums row gradients in fp32
    context = jax.vmap(kernel)(q, k, v, segments, row_sinks.astype(q.dtype))


@splice("test_attention.run", after="sliding_window attention_soft_cap", optional=True)
def _(run):
    run = functools.partial(run, sinks=jnp.arange(4) / 4)


@splice("attend_slowly.total", optional=True)
def _(total, scores, n):
    total = total + np.exp(n / 4 - scores.max())


@splice("hf.layer_tensors")
def _():
    yield "attention.sinks", "model.layers.{}.self_attn.sinks", "n -> n"
