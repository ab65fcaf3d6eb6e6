"""Sampling without branches, sorts and random numbers on the device, whose compiler takes none of them.

The host draws a number for each place, of which the inverse of the cumulative distribution makes a token.

Source: Steele et al. 2014, OOPSLA, doi 10.1145/2660193.2660195 (the mixing function).
"""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from generator.language import provide, splice
from generator.language.roles import (
    CONFIG,
    Decoder,
    Device,
    EngineSettings,
    SamplingMetadata,
    argmax,
    biases_of,
    filter_logits,
    likeliest,
    metadata_of,
    penalize,
    sample,
)


def uniform(seeds: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns numbers in (0, 1], of 24 bits, for seeds [B, 1] and lengths [B, C] of sequences: [B, C]."""
    x = (seeds.astype(np.uint64) << np.uint64(32) | lengths.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
    return (((x ^ x >> np.uint64(31)) >> np.uint64(40)) + 1).astype(np.float32) / 2**24


@splice("StepInput.fields")
def _():
    uniforms: Array | None = None  # [B, C]: a number in (0, 1] for each token that is sampled


@splice("Device.run")
def _(step, length, score_all):
    # a number for the token after the last one of each sequence, or after each one
    ends = step.starts[:, None] + np.arange(1, length + 1) if score_all else (step.starts + step.counts)[:, None]
    step = step._replace(uniforms=uniform(step.sampling.seed[:, None], ends))


@provide("run")
def uniforms(step) -> Array:
    return step.uniforms.ravel()


def draw_by_sums(logits: Array, metadata: SamplingMetadata, uniforms: Array) -> Array:
    """Draws tokens [B] by logits [B, V]: the first ones whose cumulative probabilities reach `uniforms` [B]."""
    logits = logits / jnp.where(metadata.temperature == 0, 1, metadata.temperature)[:, None]
    total = jnp.cumsum(jax.nn.softmax(filter_logits(logits, metadata.top_k, metadata.top_p, metadata.min_p)), axis=-1)
    return jnp.sum(total < uniforms[:, None] * total[:, -1:], axis=-1)


@splice("penalize.seen")
def _(logits, sequences, rows, seen):
    seen = jnp.zeros(logits.shape).at[rows, sequences]  # counts in fp32, as integers are not added at indices


@splice("filter_logits.ascending")
def _(logits, ascending):
    ascending = jax.lax.top_k(logits, logits.shape[1])[0][:, ::-1]


@splice("sample.logits")
def _(logits, sequences, lengths, metadata, biases):
    logits = biases.add(penalize(logits, sequences, lengths, metadata), lengths, metadata)


@splice("sample.tokens")
def _(logits, metadata, uniforms, likeliest, sampled):
    likeliest = argmax(logits)
    sampled = draw_by_sums(logits, metadata, uniforms)


@splice("run.top")
def _(logits, log_sum, top):
    top = likeliest(logits, log_sum)


@splice("test_sampling.drawn", optional=True)
def _(logits, count, settings, sequences, tokens):
    lengths = np.ones(count, np.int32)
    numbers = uniform(settings.seed[:, None], np.ones((count, 1))).ravel()
    tokens = sample(jnp.tile(logits, (count, 1)), sequences, lengths, settings, biases_of(count), numbers)


@splice("test_sampling.penalized", optional=True)
def _(logits, sequences, settings, sampled):
    metadata = metadata_of(8, prompt=6, **settings)
    lengths = np.full(8, 15, np.int32)
    sampled = sample(logits, sequences, lengths, metadata, biases_of(8), np.ones(8))


@splice("traced.more", optional=True)
def _(programs):
    settings = EngineSettings(max_sequences=4, page_size=8, chunk=16, max_length=64)
    device = Device(CONFIG, jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))(), settings, None, 33, 64)

    def changed(act):  # what an act of the device changes, and gives
        copied = copy.copy(device)
        return act(copied), copied.state, copied.slots

    for name, rows, length, score_all in ("decode", 4, 1, False), ("prefill", 2, 16, False), ("score", 2, 16, True):
        run_step = functools.partial(Device.run, step=device.dummy_step(rows, 8), length=length, score_all=score_all)
        programs[name] = jax.jit(functools.partial(changed, run_step)).trace()
    programs["admit"] = jax.jit(lambda: changed(lambda device: device.write(0, [1, 2], [(1, 0.5, 3)]))).trace()
