"""Sampling by a random number from the host, for compilers without JAX's random numbers."""

import jax
import jax.numpy as jnp
import numpy as np

from generator.language import requires, splice
from generator.language.roles import CONFIG, new_state, next_token

requires("generate/sample")
requires("flags_neuron")  # of Trainium


@splice("sample.key")
def _(settings, length, key):
    # a number in (0, 1] for each place: the device draws none
    key = 1 - np.random.default_rng(settings.seed).random(length, np.float32)


@splice("next_token.sampled")
def _(logits, count, temperature, key, sampled):
    total = jnp.cumsum(jax.nn.softmax(logits / jnp.maximum(temperature, 1e-6)))
    sampled = jnp.sum(total < key[count] * total[-1])


@splice("test_sample.draw", optional=True)
def _(model, text, rng, draw):
    draw = [int(next_token(model, text, 7, t, 4, rng.random(12, np.float32))) for t in (0.0, 1.0) for _ in range(20)]


@splice("test_sample.one", optional=True)
def _(model, text):
    assert jnp.ndim(next_token(model, text, 7, 0.0, 1, np.ones(12, np.float32))) == 0


@splice("traced.more", optional=True)
def _(programs):
    decoder = jax.eval_shape(lambda: new_state(CONFIG).model)
    text = np.zeros((1, 32), np.int32)
    programs["sample"] = next_token.trace(decoder, text, 8, np.float32(1), 4, np.ones(32, np.float32))
