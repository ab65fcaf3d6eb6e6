"""The state of a recurrent unit: its channels, and the inputs that its convolution reads next.

Source: De et al. 2024, arXiv 2402.19427, equation 4.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from generator.language import emit, layers, proceed, requires, splice
from generator.language.roles import ModelConfig, convolve_after, linear_recurrence, shard

requires("rg_lru")


class RecurrentState(NamedTuple):
    """The state of a layer with a recurrent unit; K tokens are convolved."""

    values: Array  # [..., K - 1, N, H]: inputs of the convolution, of the last tokens
    memory: Array  # [..., N, H], in fp32


def empty_states(config: ModelConfig, slots: int) -> RecurrentState:
    """Returns zeroed states: `slots` for each layer that has one; at least one layer, as JAX traces empty scans."""
    of_layers = slots, max(layers.scanned, 1)
    N, H = config.heads, config.recurrent_width // config.heads
    values = jnp.zeros((*of_layers, config.convolution_size - 1, N, H), config.dtype)
    memory = jnp.zeros((*of_layers, N, H), jnp.float32)
    return RecurrentState(shard(values, None, None, None, "heads", None), shard(memory, None, None, "heads", None))


def recurrence_after(memory: Array, x: Array, decay: Array, counts: Array) -> tuple[Array, Array]:
    """Continues a recurrence after tokens of earlier steps: memory [B, N, H]; the others as in `linear_recurrence`.

    Returns:
        The state after each token, [B, T, N, H], and those after `counts` [B, C] tokens, where C is 1 or T.
    """
    length = x.shape[1]
    if counts.shape[1] < length:
        is_token = (jnp.arange(length) < counts)[:, :, None, None]  # padding neither decays nor writes
        x, decay = jnp.where(is_token, x, 0), jnp.where(is_token, decay, 1)
    y = linear_recurrence(x, decay, memory)
    return y, y[:, -counts.shape[1] :]


@splice("RecurrentUnit.convolve")
def _(self, value, states, state_cache):
    if states is None:
        proceed()
    else:
        before = states.before(state_cache)
        value, values = convolve_after(before.values, value, self.kernel, states.counts)
        state_cache = state_cache._replace(after=before._replace(values=values))


@splice("RecurrentUnit.recur")
def _(written, decay, states, state_cache, y):
    if states is None:
        proceed()
    else:
        y, memories = recurrence_after(state_cache.after.memory, written, decay, states.counts)
        state_cache = state_cache._replace(after=state_cache.after._replace(memory=memories))
    emit(state_cache)
