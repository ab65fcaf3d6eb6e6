"""Text generation: greedy, or sampled with a temperature, top-k and top-p.

Source: Fan et al. 2018, arXiv 1805.04833 (top-k); Holtzman et al. 2020, arXiv 1904.09751 (top-p).
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

from generator.language import layers, provide, receive
from generator.language.roles import (
    ByteTokenizer,
    Cache,
    Decoder,
    FileTokenizer,
    InputError,
    as_text,
    empty_cache,
    ending_with_messages,
    field_problems,
    load_checkpoint,
    load_tokenizer,
    make_mesh,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen."""

    max_tokens: int = 128  # most tokens to add; fewer where the text ends before
    temperature: float = 0.0  # divides the logits; 0: the likeliest token, always
    top_k: int = 0  # draw from this many likeliest tokens; 0: from all
    top_p: float = 1.0  # draw from the fewest likeliest tokens that together have this probability
    seed: int = 0  # of the draws


@functools.partial(jax.jit, donate_argnames="cache")
def decode(model: Decoder, cache: Cache, tokens: Array, positions: Array, last: Array) -> tuple[Array, Cache]:
    """Adds tokens [B, T] at positions [B, T] to the cache; logits [B, V] after column `last` [B], and the cache.

    Columns after `last` are padding: a slot that they fill is overwritten before a query can see it.
    """
    x = model.hidden(tokens)
    receive(cache)
    x = jnp.take_along_axis(x, last[:, None, None], axis=1)  # [B, 1, D]
    return model.embedding.logits(x, model.embedding.kernel())[:, 0], cache


@provide("decode")
def positions(positions) -> Array:
    return positions


@provide("decode")
def cache(cache) -> Cache:
    return cache


def filter_logits(logits: Array, top_k: int, top_p: float) -> Array:
    """Logits [B, V] with -inf for all but the top_k largest (0: all), and of these the fewest that make up top_p.

    Top-k: Fan et al. 2018, arXiv 1805.04833. Top-p: Holtzman et al. 2020, arXiv 1904.09751.
    """
    ascending = jnp.sort(logits)
    kth = ascending[:, -top_k, None]  # of 0, the smallest
    ascending = jnp.where(ascending < kth, -jnp.inf, ascending)
    kept = (jnp.cumsum(jax.nn.softmax(ascending), axis=-1) > 1 - top_p).at[:, -1].set(True)
    smallest = jnp.min(ascending, axis=-1, where=kept, initial=jnp.inf, keepdims=True)
    return jnp.where(logits < smallest, -jnp.inf, logits)


@functools.partial(jax.jit, static_argnames="sampling")
def sample(logits: Array, key: Array, sampling: Sampling) -> Array:
    """Tokens [B] from logits [B, V]."""
    if sampling.temperature == 0:
        return jnp.argmax(logits, axis=-1)
    return jax.random.categorical(key, filter_logits(logits / sampling.temperature, sampling.top_k, sampling.top_p))


def generate(model: Decoder, prompts: Sequence[Sequence[int]], sampling: Sampling, eos: int) -> Iterator[np.ndarray]:
    """Yields the next token of each prompt, [B] int32, until all have ended; one that has ended gets `eos`."""
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    config, longest = model.config, max(lengths)
    if problems := field_problems(sampling, {"top_p": (1e-6, 1), "top_k": (0, config.vocab_size)}):
        raise InputError("\n".join(problems))
    if min(lengths) == 0:
        raise InputError("a prompt is empty: begin it with bos")
    if longest + sampling.max_tokens > config.context_length:
        sizes = f"the prompt has {longest} tokens, the context {config.context_length}"
        raise InputError(f"--max-tokens {sampling.max_tokens}: {sizes}: lower it, or shorten the prompt")
    if (largest := max(map(max, prompts))) >= config.vocab_size:
        raise InputError(f"the prompt has token {largest} of another tokenizer: the vocabulary has {config.vocab_size}")
    tokens = np.array([[*prompt] + [0] * (longest - len(prompt)) for prompt in prompts], np.int32)
    positions, last = np.broadcast_to(np.arange(longest, dtype=np.int32), tokens.shape), lengths - 1
    cache = layers.stacked(lambda group: empty_cache(config, group.count, len(prompts), longest + sampling.max_tokens))
    ended = np.zeros(len(prompts), bool)
    for step, key in enumerate(jax.random.split(jax.random.key(sampling.seed), sampling.max_tokens)):
        logits, cache = decode(model, cache, tokens, positions, last)
        new = np.where(ended, eos, sample(logits, key, sampling)).astype(np.int32)
        yield new
        ended |= new == eos
        if ended.all():
            return
        tokens, positions, last = new[:, None], lengths[:, None] + step, np.zeros_like(last)


def stream_text(tokenizer: ByteTokenizer | FileTokenizer, prompt: list[int], tokens: Iterable[int]) -> Iterator[str]:
    """Text as its tokens come, after that of the prompt; a character waits for the last of its bytes."""
    ids, shown = list(prompt), ""
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            yield text[len(shown) :]
            shown = text
    yield tokenizer.decode(ids)[len(shown) :]


@ending_with_messages()
def main(checkpoint_dir: str, prompt: str, sampling: Sampling) -> None:
    """Prints a prompt and its continuation by the newest checkpoint of a directory."""
    config, model = load_checkpoint(checkpoint_dir, make_mesh())
    tokenizer = load_tokenizer(config.tokenizer)
    ids = [tokenizer.bos, *tokenizer.encode(as_text(prompt.encode(errors="surrogateescape"), "--prompt"))]
    tokens = (int(token) for (token,) in generate(model, [ids], sampling, tokenizer.eos))
    for piece in stream_text(tokenizer, ids, tokens):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    tyro.cli(main, config=(tyro.conf.OmitArgPrefixes,))
