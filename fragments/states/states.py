"""Recurrent states of many sequences, in slots of one pool."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import layers, provide
from generator.language.roles import ModelConfig, RecurrentState


class StateCache(NamedTuple):
    """The recurrent state of one layer in a step."""

    layer: Array  # [] int32, its number among the layers with a state; [L] for a stack of layers
    after: RecurrentState | None = None  # arrays [B, C, ...], as in `States`


class States(NamedTuple):
    """The pool of states, and which of them a step reads and writes."""

    pool: RecurrentState  # arrays [P, L, ...]: P slots for a state of each layer; those of slot 0 stay zero
    read: Array  # [B]: the slot of each sequence
    written: Array  # [B, C]: the slots of its states after `counts` tokens of the step; 0 where none is kept
    counts: Array  # [B, C]: all of the step's (C = 1), or 1 to T (C = T)

    def before(self, cache: StateCache) -> RecurrentState:
        """Returns the state of a layer before the step, arrays [B, ...]."""
        return jax.tree.map(lambda x: x[self.read, cache.layer], self.pool)

    def write(self, cache: StateCache) -> "States":
        """Returns these states with what the step adds, [L, B, C, ...] of stacked layers, in the pool."""

        def write_array(x, after):
            slots = jnp.where(self.written > 0, self.written, x.shape[0])  # beyond the last: not written
            return x.at[slots, cache.layer[:, None, None]].set(after.astype(x.dtype), mode="drop")

        return self._replace(pool=jax.tree.map(write_array, self.pool, cache.after))


def layers_with_states(config: ModelConfig) -> StateCache:
    """Returns the caches of a model's layers that have a state."""
    counts, structure = jax.tree.flatten(layers.stacked(lambda group: group.count))
    numbers = np.split(np.arange(sum(counts), dtype=np.int32), np.cumsum(counts)[:-1])
    return jax.tree.unflatten(structure, [StateCache(of_stack) for of_stack in numbers])


@provide("Decoder.hidden", optional=True, per_layer=True)
def state_cache() -> StateCache:
    return None


@provide("Decoder.hidden", optional=True)
def states() -> States:
    return None
