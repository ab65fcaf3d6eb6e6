"""The state of layers with keys and values, a recurrent state, or both: what a step reads of it, and writes to it."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, provide, receive, requires, threaded
from generator.language.roles import (
    Cache,
    Decoder,
    ModelConfig,
    Pages,
    RecurrentState,
    StateCache,
    States,
    StepInput,
    empty_pages,
    empty_states,
    layers_in_pool,
    layers_with_states,
    positions_of,
    states_of,
)

requires("states", "pages")


class LayerState(NamedTuple):
    """What the layers of a model keep of all sequences."""

    key: Array  # pages of all layers that have some, as in `Pages`
    value: Array
    layers: Cache  # where the pages of each layer begin
    states: RecurrentState  # of all layers that have one, as in `States`
    point("LayerState.fields")


def empty_state(config: ModelConfig, pages: int, size: int, state_slots: int = threaded()) -> LayerState:
    """Returns zeroed pages of `size` positions, and slots for recurrent states, for each layer that has them."""
    pool = empty_pages(config, pages, size)
    # JAX traces scans over no layers too, which read a page
    pool = jax.tree.map(lambda x: x if x.size else jnp.zeros((1, *x.shape[1:]), x.dtype), pool)
    state = LayerState(*pool, layers_in_pool(config, pages), empty_states(config, state_slots))
    point("empty_state.made", state, config, pages)
    return state


def hidden(
    model: Decoder, tokens: Array, positions: Array, state: LayerState, step: StepInput
) -> tuple[Array, tuple[Cache, StateCache]]:
    """Computes the residual stream [B, T, D] of tokens at positions [B, T], negative for padding, and their caches."""
    x = model.hidden(tokens)
    receive(cache)
    receive(state_cache)
    return x, (cache, state_cache)


@provide("hidden")
def positions(positions) -> Array:
    return positions


@provide("hidden")
def cache(state) -> Cache:
    return state.layers


@provide("hidden")
def pages(state, step) -> Pages:
    return Pages(state.key, state.value, step.block_tables)


@provide("hidden")
def state_cache(model) -> StateCache:
    return layers_with_states(model.config)


@provide("hidden")
def states(state, step) -> States:
    return states_of(state.states, step)


@functools.partial(jax.jit, static_argnames="length", donate_argnames="state")
def write(state: LayerState, new: tuple[Cache, StateCache], step: StepInput, length: int) -> LayerState:
    """Writes what a step adds; not in `run`, as a program that reads the pools too would copy them."""
    pages = Pages(state.key, state.value, step.block_tables)
    states = states_of(state.states, step)
    positions = positions_of(step, length)
    for cache in jax.tree.leaves(new, is_leaf=lambda x: isinstance(x, Cache | StateCache)):
        if isinstance(cache, Cache):
            pages = pages.write(cache, positions)
        else:
            states = states.write(cache)
    return state._replace(key=pages.key, value=pages.value, states=states.pool)
