"""The state of layers that have keys and values alone: what a step reads of it, and writes to it."""

import functools
from typing import NamedTuple

import jax
from jax import Array

from generator.language import excludes, point, provide, receive, setting
from generator.language.roles import (
    Cache,
    Decoder,
    ModelConfig,
    Pages,
    StepInput,
    empty_pages,
    layers_in_pool,
    positions_of,
)

excludes("states")


class LayerState(NamedTuple):
    """What the layers of a model keep of all sequences."""

    key: Array  # pages of all layers, as in `Pages`
    value: Array
    layers: Cache  # where the pages of each layer begin
    point("LayerState.fields")


def empty_state(config: ModelConfig, pages: int, size: int) -> LayerState:
    """Returns a zeroed state: `pages` pages of `size` positions for each layer."""
    state = LayerState(*empty_pages(config, pages, size), layers_in_pool(config, pages))
    point("empty_state.made", state, config, pages)
    return state


def hidden(model: Decoder, tokens: Array, positions: Array, state: LayerState, step: StepInput) -> tuple[Array, Cache]:
    """Computes the residual stream [B, T, D] of tokens at positions [B, T], negative for padding, and their cache."""
    x = model.hidden(tokens)
    receive(cache)
    return x, cache


@provide("hidden")
def positions(positions) -> Array:
    return positions


@provide("hidden")
def cache(state) -> Cache:
    return state.layers


@provide("hidden")
def pages(state, step) -> Pages:
    return Pages(state.key, state.value, step.block_tables)


@functools.partial(jax.jit, static_argnames="length", donate_argnames="state")
def write(state: LayerState, new: Cache, step: StepInput, length: int) -> LayerState:
    """Writes a step's keys and values; not in `run`, as a program that reads the pages too would copy them."""
    pages = Pages(state.key, state.value, step.block_tables)
    positions = positions_of(step, length)
    if setting("one_stack"):
        pages = pages.write(new, positions)
    else:
        for cache in jax.tree.leaves(new, is_leaf=lambda x: isinstance(x, Cache)):
            with point("write.layers", pages, cache, positions):
                pages = pages.write(cache, positions)
    return state._replace(key=pages.key, value=pages.value)
