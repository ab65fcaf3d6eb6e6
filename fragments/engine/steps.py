"""The compiled step of an engine: many sequences through the same forward pass as in training."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import point
from generator.language.roles import TOP, Biases, Decoder, LayerState, Request, SamplingMetadata, hidden, sample


class Slots(NamedTuple):
    """What a device keeps of running sequences; the last row and the last column are scratch."""

    sequences: Array  # [slots, S], all tokens so far
    biases: Biases


class StepInput(NamedTuple):
    """The input of a step of B sequences, from the host."""

    slots: Array  # [B]
    starts: Array  # [B]: position of the first token of each
    counts: Array  # [B]: number of tokens of each
    samples: Array  # [B]: whether to sample the next token
    block_tables: Array  # as in `Pages`
    top: Array  # []: whether any sequence asks for the likeliest tokens
    sampling: SamplingMetadata
    point("StepInput.fields")


class StepOutput(NamedTuple):
    """The output of a step of B sequences: after the last token of each (C = 1), or after all T tokens (C = T)."""

    scores: Array  # [B, C]: log-probability of the next token
    tokens: Array  # [B, C]: the next token, sampled unless it is in the prompt
    top_tokens: Array  # [B, C, 20]
    top_logprobs: Array  # [B, C, 20]
    point("StepOutput.fields")


@jax.jit
def write_slot(slots: Slots, slot: Array, row: Slots) -> Slots:
    return jax.tree.map(lambda x, new: x.at[slot].set(new), slots, row)


def likeliest(logits: Array, log_sum: Array) -> tuple[Array, Array]:
    top_logits, tokens = jax.lax.top_k(logits, min(TOP, logits.shape[-1]))
    return tokens, top_logits - log_sum


class StepInFlight(NamedTuple):
    """A step that was started."""

    output: StepOutput
    requests: list[Request]
    step: StepInput
    score_all: bool  # whether it scores all tokens


def likeliest_tokens(top: Sequence[np.ndarray], row: int, count: int) -> list[dict[int, float]]:
    """Returns the `count` likeliest tokens at each place of a row, with log-probabilities, of arrays [B, C, 20]."""
    each = zip(*(x[row, :, :count].tolist() for x in top), strict=True)
    return [dict(zip(*pair, strict=True)) for pair in each]


def positions_of(step: StepInput, length: int) -> Array:
    """Returns the positions [B, T] of a step's tokens, -1 for padding."""
    columns = jnp.arange(length)
    return jnp.where(columns < step.counts[:, None], step.starts[:, None] + columns, -1)


@functools.partial(jax.jit, static_argnames=("length", "score_all"), donate_argnames="slots")
def run(
    model: Decoder, state: LayerState, slots: Slots, step: StepInput, length: int, score_all: bool
) -> tuple[StepOutput, object, Slots]:
    """Runs up to `length` (T) tokens of each sequence through the model, and samples the next token.

    Args:
        score_all: whether to score what follows every token, rather than the last one alone.
    """
    point("run.model", model, step)
    sequences = slots.sequences
    point("run.sequences", sequences, step)
    positions = positions_of(step, length)
    tokens = jnp.where(positions < 0, 0, sequences[step.slots[:, None], positions])
    with point("run.hidden", model, tokens, positions, state, step):
        x, new = hidden(model, tokens, positions, state, step)  # [B, T, D]
    with point("run.scored", model, state, step, length, x, new):
        lengths = step.starts + step.counts  # [B]
        if not score_all:
            last = jnp.maximum(step.counts - 1, 0)[:, None]
            x = jnp.take_along_axis(x, last[:, :, None], axis=1)  # [B, 1, D]
            positions = lengths[:, None] - 1  # [B, 1]
        logits = model.embedding.logits(x, model.embedding.kernel())  # [B, C, V]
        B, C = logits.shape[:2]
        each = jax.tree.map(lambda x: jnp.repeat(x, C), (step.slots, step.sampling))
        tokens, own_biases = jax.tree.map(lambda x: x[each[0]], (sequences, slots.biases))
        with point("run.sampled", step, logits, B, C, tokens, positions, each, own_biases):
            sampled = sample(logits.reshape(B * C, -1), tokens, positions.ravel() + 1, each[1], own_biases).reshape(
                B, C
            )
        is_last = positions + 1 == lengths[:, None]  # [B, C]
        point("run.is_last", step, positions, is_last, B, C)
        # where none is sampled, to the last column, which is never read
        written = jnp.where(step.samples[:, None] & is_last, positions + 1, sequences.shape[1] - 1)
        sequences = sequences.at[step.slots[:, None], written].set(sampled)
        following = sequences[step.slots[:, None], positions + 1]  # [B, C]
        log_sum = jax.nn.logsumexp(logits, axis=2, keepdims=True)  # [B, C, 1]
        scores = (jnp.take_along_axis(logits, following[:, :, None], axis=2) - log_sum)[:, :, 0]
        with point("run.top", step, logits, log_sum, B, C):
            top = jax.lax.cond(
                step.top, likeliest, lambda *x: jax.tree.map(jnp.zeros_like, likeliest(*x)), logits, log_sum
            )
    point("run.output", scores, following, top, B, C)
    return StepOutput(scores, following, *top), new, slots._replace(sequences=sequences)
