"""The state of layers that all have a recurrent state: what a step reads of it, and writes to it."""

import functools
from typing import NamedTuple

import jax
from jax import Array

from generator.language import excludes, provide, receive, requires, splice, threaded
from generator.language.roles import (
    Decoder,
    ModelConfig,
    RecurrentState,
    StateCache,
    States,
    StepInput,
    count_slots,
    empty_states,
    layers_with_states,
    states_of,
)

requires("states")
excludes("pages")


class LayerState(NamedTuple):
    """What the layers of a model keep of all sequences."""

    states: RecurrentState  # as in `States`


def empty_state(config: ModelConfig, pages: int, size: int, state_slots: int = threaded()) -> LayerState:
    """Returns a zeroed state: `state_slots` recurrent states for each layer."""
    return LayerState(empty_states(config, state_slots))


def hidden(
    model: Decoder, tokens: Array, positions: Array, state: LayerState, step: StepInput
) -> tuple[Array, StateCache]:
    """Computes the residual stream [B, T, D] of tokens at positions [B, T], negative for padding, and their caches."""
    x = model.hidden(tokens)
    receive(state_cache)
    return x, state_cache


@provide("hidden")
def positions(positions) -> Array:
    return positions


@provide("hidden")
def state_cache(model) -> StateCache:
    return layers_with_states(model.config)


@provide("hidden")
def states(state, step) -> States:
    return states_of(state.states, step)


@functools.partial(jax.jit, static_argnames="length", donate_argnames="state")
def write(state: LayerState, new: StateCache, step: StepInput, length: int) -> LayerState:
    """Writes what a step adds; not in `run`, as a program that reads the pool too would copy it."""
    states = states_of(state.states, step)
    for state_cache in jax.tree.leaves(new, is_leaf=lambda x: isinstance(x, StateCache)):
        states = states.write(state_cache)
    return state._replace(states=states.pool)


def block_table_widths(longest: int, size: int) -> list[int]:
    """Returns the width of block tables, in pages of `size` positions, for up to `longest` tokens."""
    return [-(-longest // size)]


@splice("Engine.pages", before="serve_processes")
def _(self, pages):
    # which count tokens on the host alone: those of running sequences, and of prompts that can share a state
    pages = min(pages, 1 + (count_slots(self.settings) - 1) * self.pages_for(self.longest))
