"""The int8 KV cache: log-probabilities as with rounded keys and values, little more than 8 bits a number."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import excludes, requires
from generator.language.roles import (
    WIDE,
    Decoder,
    Engine,
    EngineSettings,
    SamplingParams,
    drafting,
    heads_in_int8,
    wide_model,
)

requires("int8")
excludes("latent_attention")  # which rounds latents instead of heads

LONGEST = 96


def rounded(x):
    """Rounds each vector to multiples of a 127th of its largest absolute value."""
    step = jnp.abs(x).max(axis=-1, keepdims=True) / 127
    return jnp.rint(x / step) * step


@pytest.fixture(scope="module")
def model():
    return wide_model()


def answers(model, **settings):
    sizes = {"max_sequences": 2, "max_length": LONGEST, "page_size": 4, "chunk": 16, "int8_kv_cache": True}
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, WIDE.vocab_size, length).tolist() for length in (1, 7, 33, 50)]
    sampling = SamplingParams(max_tokens=20, prompt_logprobs=True)
    return Engine(WIDE, model, set(), EngineSettings(**sizes | settings)).generate(prompts, sampling)


def errors(request, forward):
    """Returns the errors of its log-probabilities against one pass over the whole sequence."""
    sequence = request.sequence
    padded = np.zeros((1, LONGEST), np.int32)
    padded[0, : len(sequence)] = sequence
    expected = np.asarray(forward(padded))[0, np.arange(len(sequence) - 1), sequence[1:]]
    return np.abs(np.array(request.prompt_logprobs + request.logprobs) - expected)


@pytest.mark.parametrize(
    "sizes", [{}, {"page_size": 16, "chunk": 64}, {"kv_cache_tokens": LONGEST, "max_sequences": 4}, drafting(2)]
)
def test_log_probabilities_are_those_of_rounded_keys_and_values(model, sizes, monkeypatch):
    exact = jax.jit(lambda tokens: jax.nn.log_softmax(model(tokens)))
    exact(np.zeros((1, LONGEST), np.int32))
    attend = vars(sys.modules[Decoder.__module__])["attend"]

    def attend_rounded(q, k, v, *others, **named):
        return attend(q, rounded(k), rounded(v), *others, **named)

    monkeypatch.setattr(sys.modules[Decoder.__module__], "attend", attend_rounded)
    expected = jax.jit(lambda tokens: jax.nn.log_softmax(model(tokens)))
    of_exact, of_rounded = [], []
    for request in answers(model, **sizes):
        of_exact.extend(errors(request, exact))
        of_rounded.extend(errors(request, expected))
    # numbers halfway between two are rounded either way, as the order of sums changes their last bits
    assert 20 * np.mean(of_rounded) < np.mean(of_exact) < 0.1


def test_the_cache_takes_little_more_than_8_bits(model):
    sizes = {"max_sequences": 1, "max_length": LONGEST}
    engines = [Engine(WIDE, model, set(), EngineSettings(**sizes, int8_kv_cache=int8)) for int8 in (False, True)]
    pools = [(engine.device.state.key, engine.device.state.value) for engine in engines]
    numbers, bits = (sum(x.nbytes for x in jax.tree.leaves(pool)) for pool in pools)
    size = pools[0][0].shape[-1]
    assert bits / numbers == (size + 4) / (4 * size)


def test_each_vector_is_rounded_by_its_largest_number():
    heads = np.random.default_rng(0).normal(size=(3, 5, 2, 16)) * np.logspace(-6, 6, 15).reshape(3, 5, 1, 1)
    heads[1, 2] = 0
    found = heads_in_int8(jnp.asarray(heads, jnp.float32))
    largest = np.abs(heads).max(axis=-1)
    assert found.numbers.dtype == jnp.int8
    np.testing.assert_array_equal(np.abs(found.numbers).max(axis=-1), 127 * (largest > 0))
    assert (np.abs(found.astype(jnp.float32) - heads).max(axis=-1) <= largest / 253.9).all()
