"""The state of Mamba-2: what its heads remember, and the inputs that its convolutions read next.

Source: Dao and Gu 2024, arXiv 2405.21060, equation 16.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import emit, layers, proceed, requires, splice
from generator.language.roles import ModelConfig, convolve_after, scan_states, shard

requires("mamba2")


class RecurrentState(NamedTuple):
    """The state of a Mamba-2 layer; K tokens are convolved."""

    values: Array  # [..., K - 1, N, H]: inputs of a convolution, of the last tokens
    writes: Array  # [..., K - 1, G, S]
    reads: Array  # [..., K - 1, G, S]
    memory: Array  # [..., N, S, H], in fp32


def empty_states(config: ModelConfig, slots: int) -> RecurrentState:
    """Returns zeroed states: `slots` for each layer that has one; at least one layer, as JAX traces empty scans."""
    of_layers = slots, max(layers.scanned, 1)
    N, H, G, S = config.mamba_heads, config.mamba_head_size, config.mamba_groups, config.state_size
    values = jnp.zeros((*of_layers, config.convolution_size - 1, N, H), config.dtype)
    places = jnp.zeros((*of_layers, config.convolution_size - 1, G, S), config.dtype)
    memory = jnp.zeros((*of_layers, N, S, H), jnp.float32)
    values = shard(values, None, None, None, "heads", None)
    return RecurrentState(values, places, places, shard(memory, None, None, "heads", None, None))


def scan_states_after(
    memory: Array, x: Array, write: Array, read: Array, rate: Array, step: Array, counts: Array
) -> tuple[Array, Array]:
    """Scans states over tokens after those of earlier steps.

    Args:
        memory: [B, N, S, H].
        x, write, read: as in `scan_states`.
        rate: [N], of decay.
        step: [B, T, N], how far the state moves at a token.
        counts: [B, C], where C is 1 or T.

    Returns:
        What the tokens read, [B, T, N, H], and the memories [B, C, N, S, H] after `counts` tokens.
    """
    length = x.shape[1]
    if counts.shape[1] < length:
        step = jnp.where((jnp.arange(length) < counts)[:, :, None], step, 0)  # padding neither decays nor writes
        y, memory = scan_states(step[..., None] * x, -rate * step, write, read, memory, None)
        return y, memory[:, None]

    def read_token(memory, token):
        x, write, read, step = token  # [B, N, ...]
        memory = jnp.exp(-rate * step)[:, :, None, None] * memory
        memory = memory + write[:, :, :, None] * (step[:, :, None] * x)[:, :, None, :]
        return memory, (jnp.einsum("BNS,BNSH->BNH", read, memory), memory)

    tokens = [jnp.moveaxis(array, 1, 0) for array in (x, write, read, step)]
    _, (y, memories) = jax.lax.scan(read_token, memory, tokens)
    return jnp.moveaxis(y, 0, 1), jnp.moveaxis(memories, 0, 1)


def convolve_silu_after(before: Array, x: Array, kernel: Array, bias: Array, counts: Array) -> tuple[Array, Array]:
    """Applies silu to a convolution with a bias; for the rest see `convolve_after`."""
    y, after = convolve_after(before, x, kernel, counts)
    return jax.nn.silu(y + bias.astype(x.dtype)), after


@splice("Mamba2.convolve")
def _(self, value, write, read, states, state_cache):
    if states is None:
        proceed()
    else:
        before = states.before(state_cache)
        of_values, of_writes, of_reads = self.value_convolution, self.write_convolution, self.read_convolution
        value, values = convolve_silu_after(before.values, value, of_values.kernel, of_values.bias, states.counts)
        write, writes = convolve_silu_after(before.writes, write, of_writes.kernel, of_writes.bias, states.counts)
        read, reads = convolve_silu_after(before.reads, read, of_reads.kernel, of_reads.bias, states.counts)
        state_cache = state_cache._replace(after=before._replace(values=values, writes=writes, reads=reads))


@splice("Mamba2.scan")
def _(self, value, write, read, step, states, state_cache, y):
    if states is None:
        proceed()
    else:
        rate = jnp.exp(self.log_rate[...])
        y, memories = scan_states_after(state_cache.after.memory, value, write, read, rate, step, states.counts)
        state_cache = state_cache._replace(after=state_cache.after._replace(memory=memories))
    emit(state_cache)
