"""The likeliest tokens at each place, in chunks of tokens."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import provide, requires
from generator.language.roles import Config, Decoder

requires("distill/taught")


def top_logprobs(
    model: Decoder, batch: dict[str, Array], top_k: int, known: int, temperature: float, config: Config
) -> tuple[Array, Array]:
    """Returns the likeliest of the first `known` tokens after each place of a batch, and their log-probabilities.

    Each is [B, T, K]; in nats, of the whole vocabulary.
    """
    x = model.hidden(batch["tokens"])  # [B, T, D]
    B, T, D = x.shape
    size = min(max(config.logits_per_chunk // (B * config.vocab_size), 1), T)
    chunks = -(T // -size)

    def find(x):
        logits = model.embedding.logits(x, model.embedding.kernel())
        logprobs, tokens = jax.lax.top_k(jax.nn.log_softmax(logits / temperature)[..., :known], top_k)
        return tokens, logprobs

    x = jnp.pad(x, ((0, 0), (0, chunks * size - T), (0, 0))).reshape(B, chunks, size, D)
    likeliest = jax.lax.map(find, x.swapaxes(0, 1))  # [chunks, B, size, K]
    tokens, logprobs = (y.swapaxes(0, 1).reshape(B, -1, top_k)[:, :T] for y in likeliest)
    return tokens, logprobs


@provide("top_logprobs")
def segment_ids(batch) -> Array:
    return batch["segment_ids"]


@provide("top_logprobs")
def positions(batch) -> Array:
    return batch["positions"]
