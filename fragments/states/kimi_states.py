"""The state of Kimi Delta Attention: what its heads remember, and the inputs that its convolutions read next.

Source: Kimi Team 2025, arXiv 2510.26692, equation 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, layers, proceed, requires, splice
from generator.language.roles import ModelConfig, channel_delta_rule, convolve_after, shard

requires("kimi_delta_attention")


class RecurrentState(NamedTuple):
    """The state of a layer with Kimi Delta Attention."""

    queries: Array  # [..., S - 1, N, H]: inputs of a convolution, of the last tokens
    keys: Array
    values: Array
    memory: Array  # [..., N, H, H], in fp32: what keys and values have written


def empty_states(config: ModelConfig, slots: int) -> RecurrentState:
    """Returns zeroed states: `slots` for each layer that has one; at least one layer, as JAX traces empty scans."""
    of_layers = slots, max(layers.scanned, 1)
    N, H = config.delta_heads, config.delta_head_size
    inputs = jnp.zeros((*of_layers, config.convolution_size - 1, N, H), config.dtype)
    inputs = shard(inputs, None, None, None, "heads", None)
    memory = shard(jnp.zeros((*of_layers, N, H, H), jnp.float32), None, None, "heads", None, None)
    return RecurrentState(inputs, inputs, inputs, memory)


def delta_rule_after(
    memory: Array, q: Array, k: Array, v: Array, decay: Array, beta: Array, counts: Array
) -> tuple[Array, Array]:
    """Applies the delta rule to tokens after those of earlier steps.

    Args:
        memory: [B, N, H, H].
        counts: [B, C], where C is 1 or T; the others as in `channel_delta_rule`.

    Returns:
        What the tokens read, [B, T, N, H], and the memories [B, C, N, H, H] after `counts` tokens.
    """
    length = q.shape[1]
    if counts.shape[1] < length:
        is_token = (jnp.arange(length) < counts)[:, :, None]  # padding neither decays nor writes
        decay, beta = jnp.where(is_token[..., None], decay, 0), jnp.where(is_token, beta, 0)
        y, memory = channel_delta_rule(q, k, v, decay, beta, memory, None)
        return y, memory[:, None]

    def read_token(memory, token):
        q, k, v, decay, beta = token  # [B, N, ...]
        memory = jnp.exp(decay)[..., None] * memory
        written = beta[..., None] * (v - jnp.einsum("BNH,BNHV->BNV", k, memory))
        memory = memory + k[..., None] * written[:, :, None]
        return memory, (jnp.einsum("BNH,BNHV->BNV", q, memory), memory)

    tokens = [jnp.moveaxis(x, 1, 0) for x in (q, k, v, decay, beta)]
    _, (y, memories) = jax.lax.scan(read_token, memory, tokens)
    return jnp.moveaxis(y, 0, 1), jnp.moveaxis(memories, 0, 1)


@splice("KimiDeltaAttention.convolve")
def _(self, q, k, v, states, state_cache):
    if states is None:
        proceed()
    else:
        before = states.before(state_cache)
        q, queries = convolve_after(before.queries, q, self.query_kernel, states.counts)
        k, keys = convolve_after(before.keys, k, self.key_kernel, states.counts)
        v, values = convolve_after(before.values, v, self.value_kernel, states.counts)
        state_cache = state_cache._replace(after=before._replace(queries=queries, keys=keys, values=values))


@splice("KimiDeltaAttention.read")
def _(q, k, v, decay, beta, states, state_cache, y):
    if states is None:
        proceed()
    else:
        y, memories = delta_rule_after(state_cache.after.memory, q, k, v, decay, beta, states.counts)
        state_cache = state_cache._replace(after=state_cache.after._replace(memory=memories))
    emit(state_cache)
