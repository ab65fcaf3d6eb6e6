"""Random schedules of an engine: each request gets what it gets alone, and no page leaks."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import jax
import numpy as np
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from robustness.programs import module

EXAMPLES = int(os.environ.get("SCHEDULES", "20"))
VOCABULARY, LONGEST = 31, 64
SHARED = np.random.default_rng(0).integers(0, VOCABULARY, LONGEST).tolist()
SIZES = [  # few, as each is compiled
    {"page_size": 1, "chunk": 7, "max_sequences": 3, "kv_cache_tokens": 80},
    {"page_size": 4, "chunk": 16, "max_sequences": 4, "kv_cache_tokens": 96, "draft_tokens": 3},
    {"page_size": 5, "chunk": 1, "max_sequences": 2, "kv_cache_tokens": 100},
    {"page_size": 16, "chunk": 32, "max_sequences": 5, "kv_cache_tokens": 128, "draft_tokens": 1},
    {"page_size": 100, "chunk": 64, "max_sequences": 3, "kv_cache_tokens": 0},
]


@functools.cache
def small_model() -> tuple[Any, Any, Any]:
    sizes = dict(vocab_size=VOCABULARY, width=16, layers=2, heads=2, kv_heads=1, head_size=8, mlp_width=16)
    config = dataclasses.replace(module("config").PRESETS["tiny"], **sizes, context_length=LONGEST, init_std=0.5)
    model = jax.jit(lambda: module("model").Decoder(config, nnx.Rngs(0)))()
    full = jax.jit(lambda tokens: jax.nn.log_softmax(model(tokens)))
    return config, model, lambda text: np.asarray(full(np.array([text + [0] * (LONGEST - len(text))])))[0]


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    """A prompt, which may share a beginning with others or repeat itself, and settings."""
    prompt = SHARED[: draw(st.integers(0, 40))] + draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))
    temperature, logprobs = draw(st.sampled_from([0, 0, 1])), draw(st.sampled_from([0, 2]))
    most = draw(st.integers(1, min(20, LONGEST - len(prompt))))
    settings = {"max_tokens": most, "temperature": temperature, "seed": draw(st.integers(0, 99))}
    return prompt, settings | {"logprobs": logprobs, "prompt_logprobs": draw(st.sampled_from([False, False, True]))}


@given(
    st.sampled_from(SIZES),
    st.lists(requests(), min_size=1, max_size=10),
    st.lists(st.sampled_from(["add", "step", "step", "step", "cancel"]), max_size=60),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, derandomize=True, max_examples=EXAMPLES)
def test_each_request_gives_what_it_gives_alone(sizes, waiting, actions, random):
    config, model, forward = small_model()
    engine = module("engine")
    subject = engine.Engine(config, model, set(), engine.EngineSettings(max_length=LONGEST, **sizes))
    sent: list[Any] = []
    while waiting or subject.queued or subject.running:
        action = actions.pop(0) if actions else "add" if waiting else "step"
        if action == "add" and waiting:
            prompt, chosen = waiting.pop(0)
            sent.append(subject.add(prompt, engine.SamplingParams(**chosen)))
        elif action == "cancel" and sent:
            subject.cancel(random.choice(sent))
        subject.step()
        check_pages(subject)
    assert subject.pages_used == 0
    for request in sent:
        assert request.finish == ("length" if len(request.tokens) == request.sampling.max_tokens else "cancelled")
        text = request.prompt + request.tokens
        logprobs, first = forward(text), len(request.prompt)
        places = np.arange(first - 1, len(text) - 1)
        np.testing.assert_allclose(request.logprobs, logprobs[places, text[first:]], atol=1e-4)
        if request.sampling.prompt_logprobs and request.tokens:
            expected = logprobs[np.arange(first - 1), text[1:first]]
            np.testing.assert_allclose(request.prompt_logprobs, expected, atol=1e-4)
        if not request.sampling.temperature:
            near = logprobs[places].max(axis=-1) - logprobs[places, text[first:]]
            assert (near < 1e-4).all()  # the likeliest, or as likely
        else:
            assert (
                request.tokens
                == drawn_alone(tuple(request.prompt), request.sampling.max_tokens, request.sampling.seed)[
                    : len(request.tokens)
                ]
            )


@functools.cache
def drawn_alone(prompt: tuple[int, ...], most: int, seed: int) -> list[int]:
    config, model, _ = small_model()
    engine = module("engine")
    alone = engine.Engine(
        config, model, set(), engine.EngineSettings(max_length=LONGEST, max_sequences=1, chunk=LONGEST)
    )
    (request,) = alone.generate([list(prompt)], engine.SamplingParams(max_tokens=most, temperature=1, seed=seed))
    return request.tokens


def check_pages(engine: Any) -> None:
    """Checks that each page is free or counts its references, and that digests lead to their pages."""
    held = np.zeros(engine.pool.pages, int)
    for request in engine.running:
        np.add.at(held, request.pages, 1)
    assert held.tolist() == engine.pool.ref_count
    assert sorted(engine.pool.free_pages) == [page for page in range(1, engine.pool.pages) if not held[page]]
    assert engine.pool.page_of == {digest: page for page, digest in engine.pool.digests.items()}
