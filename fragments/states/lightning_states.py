"""The state of lightning attention: what its heads remember.

Source: Qin et al. 2024, arXiv 2401.04658, section 3.2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, layers, proceed, requires, splice
from generator.language.roles import ModelConfig, scan_states, shard

requires("lightning_attention")


class RecurrentState(NamedTuple):
    """The state of a layer with lightning attention."""

    memory: Array  # [..., N, H, H], in fp32: what keys and values have written


def empty_states(config: ModelConfig, slots: int) -> RecurrentState:
    """Returns zeroed states: `slots` for each layer that has one; at least one layer, as JAX traces empty scans."""
    shape = slots, max(layers.scanned, 1), config.heads, config.head_size, config.head_size
    return RecurrentState(shard(jnp.zeros(shape, jnp.float32), None, None, "heads", None, None))


def linear_attention_after(
    memory: Array, q: Array, k: Array, v: Array, rates: Array, counts: Array
) -> tuple[Array, Array]:
    """Reads from what tokens of earlier steps and of this one have written.

    Args:
        memory: [B, N, H, H].
        q, k, v: [B, T, N, H], in fp32.
        rates: [N], at which heads forget.
        counts: [B, C], where C is 1 or T.

    Returns:
        What the tokens read, [B, T, N, H], and the memories [B, C, N, H, H] after `counts` tokens.
    """
    length = q.shape[1]
    if counts.shape[1] < length:
        is_token = (jnp.arange(length) < counts)[:, :, None]  # padding neither decays nor writes
        decay = jnp.where(is_token, -rates, 0)
        y, memory = scan_states(jnp.where(is_token[..., None], v, 0), decay, k, q, memory, None)
        return y, memory[:, None]

    def read_token(memory, token):
        q, k, v = token  # [B, N, H]
        memory = jnp.exp(-rates)[:, None, None] * memory + k[:, :, :, None] * v[:, :, None, :]
        return memory, (jnp.einsum("BNS,BNSH->BNH", q, memory), memory)

    tokens = [jnp.moveaxis(x, 1, 0) for x in (q, k, v)]
    _, (y, memories) = jax.lax.scan(read_token, memory, tokens)
    return jnp.moveaxis(y, 0, 1), jnp.moveaxis(memories, 0, 1)


@splice("LightningAttention.read")
def _(q, k, v, rates, states, state_cache, y):
    if states is None:
        proceed()
    else:
        memory = states.before(state_cache).memory
        y, memories = linear_attention_after(memory, q, k, v, rates, states.counts)
        state_cache = state_cache._replace(after=RecurrentState(memories))
    emit(state_cache)
