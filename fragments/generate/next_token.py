"""The next token of a text, without a cache."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, requires
from generator.language.roles import Decoder

requires("sample")


@jax.jit(static_argnames="top_k")
def next_token(model: Decoder, text: Array, count: Array, temperature: Array, top_k: int, key: Array) -> Array:
    """Samples the token [] after the first `count` tokens of text [B, T], B equal rows, from the top_k likeliest."""
    logits, tokens = jax.lax.top_k(model(text)[0, count - 1], top_k)
    with point("next_token.sampled", logits, count, temperature, top_k, key):
        sampled = jax.random.categorical(jax.random.fold_in(key, count), logits / jnp.maximum(temperature, 1e-6))
    return tokens[jnp.where(temperature > 0, sampled, 0)]
