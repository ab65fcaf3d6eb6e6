"""Sampling: settings of each request, passed to one compiled program as arrays.

Source: Fan et al. 2018, arXiv 1805.04833 (top-k); Holtzman et al. 2020, arXiv 1904.09751 (top-p); Nguyen et al. 2024,
arXiv 2407.01082 (min-p); Keskar et al. 2019, arXiv 1909.05858, section 4.1 (repetition penalty).
"""

import math
import typing
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import point, splice
from generator.language.roles import SamplingParams, field_problems

BIASES = 512  # tokens whose logits a request may change
VOCAB_BLOCK = 256  # tokens of the vocabulary that are drawn together first


@splice("field_problems.kind", before="longrope")
def _(field, value, allowed, requirement):
    if typing.get_origin(field.type) in (dict, tuple):
        allowed = True  # whatever is in it: the engine checks that
    elif field.type == int | None:
        allowed = value is None or (type(value) is int and 0 <= value < 2**32)
        requirement = f"an integer from 0 to {2**32 - 1:,}, or None"


def sampling_problems(sampling: SamplingParams, prompt: Sequence[int], vocab_size: int) -> list[tuple[str | None, str]]:
    """Lists what is wrong with a prompt and its sampling, whatever there is room for: (field, problem)."""
    problems = [(None, problem) for problem in field_problems(sampling)]
    if not problems and sampling.top_k > vocab_size:
        message = f"--top-k {sampling.top_k}: must be at most {vocab_size:,}, the tokens of the vocabulary"
        problems.append((None, message))
    fields = {"prompt": prompt, "logit_bias": sampling.logit_bias, "stop_token_ids": sampling.stop_token_ids}
    for field, tokens in fields.items():
        foreign = [token for token in tokens if not 0 <= token < vocab_size]
        source = f"of another tokenizer: the vocabulary has {vocab_size}"
        problems += [(field, f"{field} has token {token} {source}") for token in foreign[:1]]
    biases = sampling.logit_bias.values()
    if not all(isinstance(bias, int | float) and -1e30 <= bias <= 1e30 for bias in biases):
        problems.append(("logit_bias", "logit_bias: must be numbers from -1e30 to 1e30"))
    return problems if prompt else [*problems, ("prompt", "a prompt is empty: start it with bos")]


def fold_seed(seed: int | None, prompt: int, choice: int) -> int:
    """Returns the seed of a choice of a prompt, by their places in a request.

    The first choice of the first prompt has the seed of the request. Without that, each seed is drawn at random.
    """
    if seed is not None and prompt == choice == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(prompt, choice)).generate_state(1)[0])


class SamplingMetadata(NamedTuple):
    """Sampling settings of B sequences, each array [B]."""

    prompt: Array  # number of tokens in the prompt
    temperature: Array
    top_k: Array
    top_p: Array
    min_p: Array
    seed: Array
    presence_penalty: Array
    frequency_penalty: Array
    repetition_penalty: Array
    biases: Array  # number of logit biases
    point("SamplingMetadata.fields")


class Biases(NamedTuple):
    """Logit biases of B sequences, each array [B, BIASES]."""

    tokens: Array
    values: Array
    until: Array  # number of generated tokens from which a bias no longer applies

    def add(self, logits: Array, lengths: Array, metadata: SamplingMetadata) -> Array:
        """Adds the biases to logits [B, V] after the first `lengths` [B] tokens."""
        counts = jnp.arange(BIASES) < metadata.biases[:, None]
        counts &= (lengths - metadata.prompt)[:, None] < self.until
        return logits.at[jnp.arange(len(logits))[:, None], self.tokens].add(jnp.where(counts, self.values, 0))


def penalize(logits: Array, sequences: Array, lengths: Array, metadata: SamplingMetadata) -> Array:
    """Applies penalties to logits [B, V] after the first `lengths` [B] tokens of sequences [B, S]."""
    B, S = sequences.shape
    rows, places = jnp.arange(B)[:, None], jnp.arange(S)
    with point("penalize.seen", logits, sequences, rows, B, S):
        seen = jnp.zeros(logits.shape, jnp.int32).at[rows, sequences]
    written = places < lengths[:, None]
    added = seen.add(written & (places >= metadata.prompt[:, None]))  # [B, V]
    factor = jnp.where(seen.add(written) > 0, metadata.repetition_penalty[:, None], 1)
    logits = jnp.where(logits > 0, logits / factor, logits * factor)
    logits = logits - metadata.presence_penalty[:, None] * (added > 0)
    return logits - metadata.frequency_penalty[:, None] * added


def filter_logits(logits: Array, top_k: Array, top_p: Array, min_p: Array) -> Array:
    """Masks logits [B, V] with -inf, except the top_k [B] largest (0: all), of these the fewest that make up top_p [B],
    and of these the ones with at least min_p [B] times the largest probability.
    """
    with point("filter_logits.ascending", logits):
        ascending = jnp.sort(logits)
    kth = jnp.take_along_axis(ascending, (-top_k % logits.shape[1])[:, None], axis=1)  # of 0, the smallest
    ascending = jnp.where(ascending < kth, -jnp.inf, ascending)
    kept = (jnp.cumsum(jax.nn.softmax(ascending), axis=-1) > 1 - top_p[:, None]).at[:, -1].set(True)
    smallest = jnp.min(ascending, axis=-1, where=kept, initial=jnp.inf, keepdims=True)
    smallest = jnp.maximum(smallest, ascending[:, -1:] + jnp.log(min_p)[:, None])
    return jnp.where(logits < smallest, -jnp.inf, logits)


def argmax(logits: Array) -> Array:
    """Returns the first of the likeliest tokens [B] by logits [B, V]: on CPUs three times as fast as `jnp.argmax`."""
    V = logits.shape[1]
    is_largest = logits == jnp.max(logits, axis=1, keepdims=True)
    return jnp.min(jnp.where(is_largest, jnp.arange(V), V - 1), axis=1)


def draw_tokens(logits: Array, seeds: Array, lengths: Array) -> Array:
    """Draws tokens [B] by logits [B, V], and seeds [B] and lengths [B] of sequences.

    Draws a block of the vocabulary, and a token of it: few random numbers.
    """
    B, V = logits.shape
    size = math.gcd(V, VOCAB_BLOCK)

    def draw(seed, length, blocks):
        block_key, token_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), length))
        block = jax.random.categorical(block_key, jax.nn.logsumexp(blocks, axis=1))
        return (block * size + jax.random.categorical(token_key, blocks[block])).astype(jnp.int32)

    return jax.vmap(draw)(seeds, lengths, logits.reshape(B, V // size, size))


def sample(logits: Array, sequences: Array, lengths: Array, metadata: SamplingMetadata, biases: Biases) -> Array:
    """Samples tokens [B] from logits [B, V] after the first `lengths` [B] tokens of sequences [B, S].

    Skips what no sequence in the batch asks for. A sample depends only on its seed and the length of its sequence.
    """
    with point("sample.logits", logits, sequences, lengths, metadata, biases):
        penalties = (metadata.presence_penalty, metadata.frequency_penalty, metadata.repetition_penalty - 1)
        penalized = jnp.any(jnp.stack(penalties) != 0)
        logits = jax.lax.cond(penalized, lambda: penalize(logits, sequences, lengths, metadata), lambda: logits)
        logits = jax.lax.cond(
            jnp.any(metadata.biases > 0), lambda x: biases.add(x, lengths, metadata), lambda x: x, logits
        )

    with point("sample.tokens", logits, lengths, metadata):

        def draw(filtered):
            kept = logits / jnp.where(metadata.temperature == 0, 1, metadata.temperature)[:, None]
            if filtered:
                kept = filter_logits(kept, metadata.top_k, metadata.top_p, metadata.min_p)
            return draw_tokens(kept, metadata.seed, lengths)

        likeliest = argmax(logits)
        sampled = jax.lax.cond(
            jnp.any(metadata.temperature > 0),
            lambda: jax.lax.cond(
                jnp.any((metadata.top_k > 0) | (metadata.top_p < 1) | (metadata.min_p > 0)),
                lambda: draw(filtered=True),
                lambda: draw(filtered=False),
            ),
            lambda: likeliest,
        )
    return jnp.where(metadata.temperature == 0, likeliest, sampled)
