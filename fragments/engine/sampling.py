"""How tokens are drawn: settings of each request, applied as data.

Source: Fan et al. 2018, arXiv 1805.04833 (top-k); Holtzman et al. 2020, arXiv 1904.09751 (top-p); Nguyen et al. 2024,
arXiv 2407.01082 (min-p); Keskar et al. 2019, arXiv 1909.05858, section 4.1 (repetition penalty).
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

TOP = 20  # likeliest tokens that a request may ask for


BIASES = 512  # tokens whose logits a request may change


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the tokens of a request are chosen."""

    max_tokens: int = 128  # most tokens to add; fewer where the text ends before
    temperature: float = 0.0  # divides the logits; 0: the likeliest token, always
    top_k: int = 0  # draw from this many likeliest tokens; 0: from all
    top_p: float = 1.0  # draw from the fewest likeliest tokens that together have this probability
    min_p: float = 0.0  # draw from tokens at least so likely, as a share of the likeliest one's probability
    seed: int = 0  # of the draws
    presence_penalty: float = 0.0  # subtracted from the logits of tokens that were added before
    frequency_penalty: float = 0.0  # the same, for each time
    repetition_penalty: float = 1.0  # logits above 0 of all tokens so far are divided by it, others multiplied
    ignore_eos: bool = False  # go on after the end of the text
    stop_token_ids: tuple[int, ...] = ()  # tokens that end the text too
    min_tokens: int = 0  # tokens to add before one may end the text
    logit_bias: dict[int, float] = dataclasses.field(default_factory=dict)  # added to the logits of these tokens
    logprobs: int = 0  # likeliest tokens to give at each place, at most 20
    prompt_logprobs: bool = False  # give log-probabilities of the prompt's tokens as well


class Draws(NamedTuple):
    """Settings of the draws of B texts: each array [B]."""

    prompt: Array  # tokens of the prompt
    temperature: Array
    top_k: Array
    top_p: Array
    min_p: Array
    seed: Array
    presence_penalty: Array
    frequency_penalty: Array
    repetition_penalty: Array
    biases: Array  # how many there are of each text


class Biases(NamedTuple):
    """What is added to logits: of each text up to BIASES tokens, each array [B, BIASES]."""

    tokens: Array
    values: Array
    until: Array  # tokens added, from which on it is not added any more

    def add(self, logits: Array, lengths: Array, draws: Draws) -> Array:
        """Logits [B, V] of what follows the first `lengths` [B] tokens, with the biases."""
        counts = jnp.arange(BIASES) < draws.biases[:, None]
        counts &= (lengths - draws.prompt)[:, None] < self.until
        return logits.at[jnp.arange(len(logits))[:, None], self.tokens].add(jnp.where(counts, self.values, 0))


def penalize(logits: Array, texts: Array, lengths: Array, draws: Draws) -> Array:
    """Logits [B, V] after texts [B, S] of which the first `lengths` [B] tokens count."""
    B, S = texts.shape
    rows, places = jnp.arange(B)[:, None], jnp.arange(S)
    seen = jnp.zeros(logits.shape, jnp.int32).at[rows, texts]
    written = places < lengths[:, None]
    added = seen.add(written & (places >= draws.prompt[:, None]))  # [B, V]
    factor = jnp.where(seen.add(written) > 0, draws.repetition_penalty[:, None], 1)
    logits = jnp.where(logits > 0, logits / factor, logits * factor)
    logits = logits - draws.presence_penalty[:, None] * (added > 0)
    return logits - draws.frequency_penalty[:, None] * added


def filter_logits(logits: Array, top_k: Array, top_p: Array, min_p: Array) -> Array:
    """Logits [B, V] with -inf for all but the top_k [B] largest (0: all), of these the fewest that make up top_p [B],
    and of these the ones of at least min_p [B] times the largest probability.
    """
    ascending = jnp.sort(logits)
    kth = jnp.take_along_axis(ascending, (-top_k % logits.shape[1])[:, None], axis=1)  # of 0, the smallest
    ascending = jnp.where(ascending < kth, -jnp.inf, ascending)
    kept = (jnp.cumsum(jax.nn.softmax(ascending), axis=-1) > 1 - top_p[:, None]).at[:, -1].set(True)
    smallest = jnp.min(ascending, axis=-1, where=kept, initial=jnp.inf, keepdims=True)
    smallest = jnp.maximum(smallest, ascending[:, -1:] + jnp.log(min_p)[:, None])
    return jnp.where(logits < smallest, -jnp.inf, logits)


def sample(logits: Array, texts: Array, lengths: Array, draws: Draws, biases: Biases) -> Array:
    """Tokens [B] from logits [B, V] after the first `lengths` [B] tokens of texts [B, S].

    What no text of the batch asks for is not computed. A draw depends on the seed and the length of its text alone.
    """
    penalties = (draws.presence_penalty, draws.frequency_penalty, draws.repetition_penalty - 1)
    penalized = jnp.any(jnp.stack(penalties) != 0)
    logits = jax.lax.cond(penalized, lambda: penalize(logits, texts, lengths, draws), lambda: logits)
    logits = jax.lax.cond(jnp.any(draws.biases > 0), lambda x: biases.add(x, lengths, draws), lambda x: x, logits)

    def draw():
        scaled = logits / jnp.where(draws.temperature == 0, 1, draws.temperature)[:, None]
        filtered = jnp.any((draws.top_k > 0) | (draws.top_p < 1) | (draws.min_p > 0))
        chosen = draws.top_k, draws.top_p, draws.min_p
        kept = jax.lax.cond(filtered, lambda: filter_logits(scaled, *chosen), lambda: scaled)
        keys = jax.vmap(lambda seed, length: jax.random.fold_in(jax.random.key(seed), length))(draws.seed, lengths)
        return jax.vmap(jax.random.categorical)(keys, kept)

    likeliest = jnp.argmax(logits, axis=-1)
    drawn = jax.lax.cond(jnp.any(draws.temperature > 0), draw, lambda: likeliest)
    return jnp.where(draws.temperature == 0, likeliest, drawn).astype(jnp.int32)
