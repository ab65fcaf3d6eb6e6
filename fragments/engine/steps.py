"""The programs of an engine: one step of many texts, by the forward pass that training has."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, provide, receive
from generator.language.roles import TOP, Biases, Cache, Decoder, Draws, Pages, sample


class StepInput(NamedTuple):
    """What a step takes from the host, of B texts."""

    slots: Array  # [B]
    starts: Array  # [B]: positions of the first token of each
    counts: Array  # [B]: how many tokens there are of each
    draws: Array  # [B]: whether the next token is to be drawn
    guesses: Array  # [B, T - 1], or [B, 0]: tokens after the first, to be compared with those that are drawn
    tables: Array  # of each text, as `Pages` has them
    top: Array  # []: whether any of them wants to know the likeliest tokens
    sampling: Draws


class StepOutput(NamedTuple):
    """What a step gives, of B texts: after their last tokens (C = 1), or after each of their T tokens (C = T)."""

    scores: Array  # [B, C]: log-probability of the token that follows
    tokens: Array  # [B, C]: that token, which was drawn where it was not known, or was guessed
    top_tokens: Array  # [B, C, 20]
    top_logprobs: Array  # [B, C, 20]


@jax.jit
def write_text(texts: Array, slot: Array, text: Array) -> Array:
    return texts.at[slot].set(text)


@jax.jit
def write_biases(biases: Biases, slot: Array, own: Biases) -> Biases:
    return jax.tree.map(lambda x, row: x.at[slot].set(row), biases, own)


def likeliest(logprobs: Array) -> tuple[Array, Array]:
    logprobs, tokens = jax.lax.top_k(logprobs, min(TOP, logprobs.shape[-1]))
    return tokens, logprobs


def hidden(model: Decoder, tokens: Array, positions: Array, pages: Pages, cache: Cache) -> tuple[Array, Cache]:
    """The residual stream [B, T, D] of tokens at positions [B, T], and their keys and values. Below 0 is padding."""
    x = model.hidden(tokens)
    receive(cache)
    return x, cache


@provide("hidden")
def positions(positions) -> Array:
    return positions


@provide("hidden")
def cache(cache) -> Cache:
    return cache


@provide("hidden")
def pages(pages) -> Pages:
    return pages


def positions_of(step: StepInput, length: int) -> Array:
    """Positions [B, T] of the tokens of a step; -1 where a text has fewer than T."""
    columns = jnp.arange(length)
    return jnp.where(columns < step.counts[:, None], step.starts[:, None] + columns, -1)


@functools.partial(jax.jit, static_argnames="length", donate_argnames=("key", "value"))
def write(key: Array, value: Array, cache: Cache, step: StepInput, length: int) -> tuple[Array, Array]:
    """The pool with what a step adds to it: in a program of its own, as one that reads the pool too would copy it."""
    pages = Pages(key, value, step.tables).write(cache, positions_of(step, length))
    return pages.key, pages.value


@functools.partial(jax.jit, static_argnames=("length", "whole"), donate_argnames="texts")
def run(
    model: Decoder,
    key: Array,
    value: Array,
    texts: Array,
    biases: Biases,
    layers: Cache,
    step: StepInput,
    length: int,
    whole: bool,
) -> tuple[StepOutput, Cache, Array]:
    """One step: at most `length` (T) tokens of each text go through the model, and the next one is drawn.

    Where tokens are guessed, one is drawn after each: as long as they are the guessed ones, they are the text's.

    Args:
        key, value: of the pool of pages.
        texts: [slots, S], all tokens so far.
        biases: of the draws of each slot.
        whole: whether what follows each token is scored, and not the last one's alone.
    """
    point("run.model", model)
    (B, G), nobodys = step.guesses.shape, texts.shape[1] - 1
    places = step.starts[:, None] + jnp.arange(G)
    texts = texts.at[step.slots[:, None], jnp.where(step.draws[:, None], places + 1, nobodys)].set(step.guesses)
    positions = positions_of(step, length)
    tokens = jnp.where(positions < 0, 0, texts[step.slots[:, None], positions])
    x, cache = hidden(model, tokens, positions, Pages(key, value, step.tables), layers)  # [B, T, D]
    with point("run.scored", model, key, value, step, length, x, cache):
        lengths = step.starts + step.counts  # [B]
        if not whole:
            last = jnp.maximum(step.counts - 1, 0)[:, None]
            x = jnp.take_along_axis(x, last[:, :, None], axis=1)  # [B, 1, D]
            positions = lengths[:, None] - 1  # [B, 1]
        logits = model.embedding.logits(x, model.embedding.kernel())  # [B, C, V]
        C = logits.shape[1]
        each = jax.tree.map(lambda x: jnp.repeat(x, C), (step.slots, step.sampling))
        own_texts, own_biases = jax.tree.map(lambda x: x[each[0]], (texts, biases))
        drawn = sample(logits.reshape(B * C, -1), own_texts, positions.ravel() + 1, each[1], own_biases).reshape(B, C)
        is_drawn = step.draws[:, None] & ((positions >= 0) if G else (positions + 1 == lengths[:, None]))  # [B, C]
        texts = texts.at[step.slots[:, None], jnp.where(is_drawn, positions + 1, nobodys)].set(drawn)
        following = texts[step.slots[:, None], positions + 1]  # [B, C]
        logprobs = jax.nn.log_softmax(logits)
        scores = jnp.take_along_axis(logprobs, following[:, :, None], axis=2)[:, :, 0]
        top = jax.lax.cond(step.top, likeliest, lambda x: jax.tree.map(jnp.zeros_like, likeliest(x)), logprobs)
    return StepOutput(scores, following, *top), cache, texts
