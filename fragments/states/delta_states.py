"""The state of a gated delta net: what its heads remember, and the inputs that its convolutions read next.

Source: Yang et al. 2024, arXiv 2412.06464, equation 10.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, layers, point, proceed, splice
from generator.language.roles import ModelConfig, convolve_after, gated_delta_rule, shard


class RecurrentState(NamedTuple):
    """The state of a layer with a gated delta net."""

    queries: Array  # [..., S - 1, K, H]: inputs of a convolution, of the last tokens
    keys: Array  # [..., S - 1, K, H]
    values: Array  # [..., S - 1, N, V]
    memory: Array  # [..., N, H, V], in fp32: what keys and values have written


def empty_states(config: ModelConfig, slots: int) -> RecurrentState:
    """Returns zeroed states: `slots` for each layer that has one; at least one layer, as JAX traces empty scans."""
    of_layers = slots, max(layers.scanned, 1)
    with point("empty_states.sizes", config):
        K, N, H, V = config.delta_key_heads, config.delta_value_heads, config.delta_key_size, config.delta_value_size
    keys = jnp.zeros((*of_layers, config.convolution_size - 1, K, H), config.dtype)
    values = jnp.zeros((*of_layers, config.convolution_size - 1, N, V), config.dtype)
    memory = jnp.zeros((*of_layers, N, H, V), jnp.float32)
    keys, values = (shard(x, None, None, None, "heads", None) for x in (keys, values))
    return RecurrentState(keys, keys, values, shard(memory, None, None, "heads", None, None))


def delta_rule_after(
    memory: Array, q: Array, k: Array, v: Array, decay: Array, beta: Array, counts: Array
) -> tuple[Array, Array]:
    """Applies the gated delta rule to tokens after those of earlier steps.

    Args:
        memory: [B, N, H, V].
        counts: [B, C], where C is 1 or T; the others as in `gated_delta_rule`.

    Returns:
        What the tokens read, [B, T, N, V], and the memories [B, C, N, H, V] after `counts` tokens.
    """
    length = q.shape[1]
    if counts.shape[1] < length:
        is_token = (jnp.arange(length) < counts)[:, :, None]  # padding neither decays nor writes
        with point("delta_rule_after.decay", decay, is_token):
            decay = jnp.where(is_token, decay, 0)
        beta = jnp.where(is_token, beta, 0)
        y, memory = gated_delta_rule(q, k, v, decay, beta, memory, None)
        return y, memory[:, None]

    def read_token(memory, token):
        q, k, v, decay, beta = token  # [B, N, ...]
        with point("delta_rule_after.decayed", memory, decay):
            memory = jnp.exp(decay)[:, :, None, None] * memory
        written = beta[:, :, None] * (v - jnp.einsum("BNH,BNHV->BNV", k, memory))
        memory = memory + k[:, :, :, None] * written[:, :, None, :]
        return memory, (jnp.einsum("BNH,BNHV->BNV", q, memory), memory)

    tokens = [jnp.moveaxis(x, 1, 0) for x in (q, k, v, decay, beta)]
    _, (y, memories) = jax.lax.scan(read_token, memory, tokens)
    return jnp.moveaxis(y, 0, 1), jnp.moveaxis(memories, 0, 1)


@splice("DeltaNet.convolve")
def _(self, q, k, v, states, state_cache):
    if states is None:
        proceed()
    else:
        before = states.before(state_cache)
        q, queries = convolve_after(before.queries, q, self.query_kernel, states.counts)
        k, keys = convolve_after(before.keys, k, self.key_kernel, states.counts)
        v, values = convolve_after(before.values, v, self.value_kernel, states.counts)
        # with the memory before, until tokens are read
        state_cache = state_cache._replace(after=before._replace(queries=queries, keys=keys, values=values))


@splice("DeltaNet.read")
def _(q, k, v, decay, beta, states, state_cache, y):
    if states is None:
        proceed()
    else:
        y, memories = delta_rule_after(state_cache.after.memory, q, k, v, decay, beta, states.counts)
        state_cache = state_cache._replace(after=state_cache.after._replace(memory=memories))
    emit(state_cache)
