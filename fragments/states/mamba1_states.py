"""The state of Mamba: what its channels remember, and the inputs that its convolution reads next.

Source: Gu and Dao 2023, arXiv 2312.00752, equation 2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, layers, proceed, requires, splice
from generator.language.roles import ModelConfig, convolve_after, selective_scan, shard

requires("mamba1")


class RecurrentState(NamedTuple):
    """The state of a Mamba layer; K tokens are convolved."""

    values: Array  # [..., K - 1, M]: inputs of the convolution, of the last tokens
    memory: Array  # [..., M, S], in fp32


def empty_states(config: ModelConfig, slots: int) -> RecurrentState:
    """Returns zeroed states: `slots` for each layer that has one; at least one layer, as JAX traces empty scans."""
    of_layers = slots, max(layers.scanned, 1)
    channels = config.mamba_expansion * config.width
    values = jnp.zeros((*of_layers, config.convolution_size - 1, channels), config.dtype)
    memory = jnp.zeros((*of_layers, channels, config.state_size), jnp.float32)
    return RecurrentState(shard(values, None, None, None, "mlp"), shard(memory, None, None, "mlp", None))


def selective_scan_after(
    memory: Array, x: Array, step: Array, rate: Array, write: Array, read: Array, counts: Array
) -> tuple[Array, Array]:
    """Scans states over tokens after those of earlier steps.

    Args:
        memory: [B, M, S].
        counts: [B, C], where C is 1 or T; the others as in `selective_scan`.

    Returns:
        What the tokens read, [B, T, M], and the memories [B, C, M, S] after `counts` tokens.
    """
    length = x.shape[1]
    if counts.shape[1] < length:
        step = jnp.where((jnp.arange(length) < counts)[:, :, None], step, 0)  # padding neither decays nor writes
        y, memory = selective_scan(x, step, rate, write, read, memory, None)
        return y, memory[:, None]

    def read_token(memory, token):
        x, step, write, read = token  # [B, M], [B, S]
        memory = jnp.exp(-step[:, :, None] * rate) * memory + (step * x)[:, :, None] * write[:, None]
        return memory, (jnp.einsum("BMS,BS->BM", memory, read), memory)

    tokens = [jnp.moveaxis(array, 1, 0) for array in (x, step, write, read)]
    _, (y, memories) = jax.lax.scan(read_token, memory, tokens)
    return jnp.moveaxis(y, 0, 1), jnp.moveaxis(memories, 0, 1)


@splice("Mamba.convolve")
def _(self, value, states, state_cache):
    if states is None:
        proceed()
    else:
        before = states.before(state_cache)
        value, values = convolve_after(before.values, value, self.kernel, states.counts)
        state_cache = state_cache._replace(after=before._replace(values=values))


@splice("Mamba.scan")
def _(value, step, rate, write, read, states, state_cache, y):
    if states is None:
        proceed()
    else:
        memory = state_cache.after.memory
        y, memories = selective_scan_after(memory, value, step, rate, write, read, states.counts)
        state_cache = state_cache._replace(after=state_cache.after._replace(memory=memories))
    emit(state_cache)
