"""The state of a short convolution: the inputs that its next tokens read."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from generator.language import emit, layers, proceed, requires, splice
from generator.language.roles import ModelConfig, convolve_after, shard

requires("short_convolution")


class RecurrentState(NamedTuple):
    """The state of a layer with a short convolution."""

    inputs: Array  # [..., S - 1, M]: of its last tokens


def empty_states(config: ModelConfig, slots: int) -> RecurrentState:
    """Returns zeroed states: `slots` for each layer that has one; at least one layer, as JAX traces empty scans."""
    shape = slots, max(layers.scanned, 1), config.convolution_size - 1, config.width
    return RecurrentState(shard(jnp.zeros(shape, config.dtype), None, None, None, "mlp"))


@splice("ShortConvolution.convolve")
def _(self, inputs, states, state_cache, convolved):
    if states is None:
        proceed()
    else:
        convolved, after = convolve_after(states.before(state_cache).inputs, inputs, self.kernel, states.counts)
        state_cache = state_cache._replace(after=RecurrentState(after))
    emit(state_cache)
