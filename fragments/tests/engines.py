"""The model of tests of engines, and the log-probabilities that it has in one pass, as in training."""

import dataclasses
import functools
import sys
from collections.abc import Callable

import jax
import numpy as np
from flax import nnx

from generator.language import point
from generator.language.roles import PRESETS, SMALL, Decoder, Device, Request

WIDE = dataclasses.replace(SMALL, width=PRESETS["tiny"].width, init_std=0.1)  # GPT-2's heads fill the width


@functools.cache
def wide_model() -> Decoder:
    return jax.jit(lambda: Decoder(WIDE, nnx.Rngs(0)))()


def drafting(count: int) -> dict[str, int]:
    """Returns the engine's settings for so many draft tokens; none where it has no speculative decoding."""
    sizes: dict[str, int] = {}
    point("drafting.sizes", sizes, count)
    return sizes


def compiled_steps() -> int:
    """Returns how many programs the engines of this process have: of steps, and of what they write."""
    functions = vars(sys.modules[Device.__module__]).values()
    return sum(function._cache_size() for function in functions if hasattr(function, "_cache_size"))


def scoring(model: Decoder, longest: int) -> Callable[[list[int]], np.ndarray]:
    """Returns a function from up to `longest` tokens to the log-probabilities after each one, in one pass."""
    with point("scoring.full", model):
        full = jax.jit(lambda tokens, positions: jax.nn.log_softmax(model(tokens, positions)))

    def logprobs(tokens: list[int]) -> np.ndarray:
        padded, positions = np.zeros((2, 1, longest), np.int32)
        padded[0, : len(tokens)] = tokens
        positions[0, : len(tokens)] = range(len(tokens))  # the rest: padding
        return np.asarray(full(padded, positions))[0, : len(tokens)]

    return logprobs


def check_scores(logprobs: Callable[[list[int]], np.ndarray], request: Request) -> None:
    """Compares a request's log-probabilities with those of one pass over its sequence."""
    expected = logprobs(request.sequence)
    places = np.arange(len(request.prompt) - 1, len(expected) - 1)
    np.testing.assert_allclose(request.logprobs, expected[places, request.tokens], atol=1e-4)
    for place, top in zip(places, request.top_logprobs, strict=True):
        np.testing.assert_allclose([*top.values()], np.sort(expected[place])[::-1][: len(top)], atol=1e-4)
    if request.prompt_logprobs:
        wanted = expected[np.arange(len(request.prompt) - 1), request.prompt[1:]]
        np.testing.assert_allclose(request.prompt_logprobs, wanted, atol=1e-4)
