"""Guesses of the layer ahead: those that it makes over whole texts, fewer steps, and the same texts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import Array

from generator.language import excludes, requires
from generator.language.roles import (
    SMALL,
    Decoder,
    Engine,
    EngineSettings,
    Sampling,
    hidden_ahead,
    loss,
)

requires("layers_ahead", "ahead", "untied_head")
excludes("sliding_window", "chunked_attention")

CONFIG = dataclasses.replace(SMALL, init_std=0.1)


LONGEST = 96


@pytest.fixture(scope="module")
def model():
    return jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))()


def engine(model, config=CONFIG, **settings):
    sizes = {"max_rows": 3, "max_length": LONGEST, "page_size": 4, "chunk": 16, "cache_tokens": 2 * LONGEST}
    return Engine(config, model, set(), EngineSettings(**sizes | settings))


def logits_ahead(model: Decoder, tokens: Array) -> Array:
    """Of the first layer ahead, [B, T - 1, V], after tokens [B, T] by one pass over all of them, without pages."""
    x, *_ = jax.tree.leaves(model.hidden(tokens[:, :-1]))
    positions = jnp.arange(tokens.shape[1] - 1)[None]
    x, _ = hidden_ahead(model, x, tokens[:, 1:], positions, None, None, CONFIG)
    return model.embedding.logits(x, model.embedding.kernel())


def prompts_of(seed, count):
    """Some begin alike, some repeat themselves."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, 7, 60).tolist()
    cuts, ends = rng.integers(0, 50, count), rng.integers(1, 12, count)
    return [shared[:cut] + rng.integers(0, CONFIG.vocab_size, n).tolist() for cut, n in zip(cuts, ends, strict=True)]


def test_one_pass_is_that_of_training(model):
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (2, 33), dtype=np.int32)
    rows, places = tokens[:, 1:].shape, np.arange(32, dtype=np.int32)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "positions": np.broadcast_to(places, rows)}
    batch |= {"segment_ids": np.ones(rows, np.int32), "weights": np.ones(rows, np.float32)}
    _, sums = jax.jit(lambda model: loss(model, batch, CONFIG))(model)
    logprobs = jax.nn.log_softmax(jax.jit(logits_ahead)(model, tokens))[:, :-1]
    expected = -np.take_along_axis(np.asarray(logprobs), tokens[:, 2:, None], axis=2).sum()
    np.testing.assert_allclose(sums["ahead_cross_entropy"][0], expected, rtol=1e-5)


@pytest.mark.parametrize("sizes", [{}, {"page_size": 1, "chunk": 7}, {"page_size": 16, "chunk": 64, "guesses": 3}])
def test_the_engine_guesses_what_one_pass_over_the_text_predicts(model, sizes):
    subject, made = engine(model, **{"guesses": 1} | sizes), []
    guess = subject.guess

    def guess_and_keep(request):
        made.append((request.text, subject.ahead[request]))
        return guess(request)

    subject.guess = guess_and_keep
    prompts = [[first, *prompt] for first, prompt in enumerate(prompts_of(1, 4))]  # that share no pages
    subject.generate(prompts, Sampling(max_tokens=15, temperature=1.0))
    full = jax.jit(logits_ahead)
    assert len(made) > 30
    for text, (guessed,) in made:
        padded = np.zeros((1, LONGEST), np.int32)
        padded[0, : len(text)] = text
        logits = full(model, padded)[0, len(text) - 2]
        assert logits[guessed] > logits.max() - 1e-4


def counting(model):
    """The model with layers that add nothing: a token leads to the one after it, and the layer ahead knows that."""
    D, table = CONFIG.width, np.random.default_rng(0).normal(size=model.embedding.table.shape)
    table = (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)
    model = jax.tree.map(jnp.zeros_like, model)
    model.norm.scale = model.norm.scale.replace(jnp.ones(D))
    for norm in model.ahead.token_norm, model.ahead.norm:
        norm.scale = norm.scale.replace(jnp.ones_like(norm.scale.get_value()))
    join = jnp.zeros((2 * D, D)).at[:D].set(jnp.eye(D))  # the following token alone
    model.ahead.join.kernel = model.ahead.join.kernel.replace(jnp.tile(join, (CONFIG.ahead, 1, 1)))
    model.embedding.table = model.embedding.table.replace(jnp.asarray(table))
    model.embedding.head = model.embedding.head.replace(jnp.roll(table, 1, axis=0).T)
    return model


@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (nnx.clone, {"cache_tokens": LONGEST, "max_rows": 4, "guesses": 3}),  # of what is guessed, most is wrong
        (counting, {}),  # most is right
        (counting, {"page_size": 1, "chunk": 5, "max_rows": 2}),
        (counting, {"page_size": 16, "chunk": 64, "guesses": 3}),
        (counting, {"cache_tokens": LONGEST, "max_rows": 4, "guesses": 2}),
    ],
)
def test_guesses_change_no_text(model, made, sizes):
    model = made(model)
    plain, subject = engine(model), engine(model, **{"guesses": 1} | sizes)
    for temperature in 0.0, 1.0:
        sampling = Sampling(max_tokens=20, temperature=temperature, seed=3)
        prompts = prompts_of(2, 9)
        added = [subject.add(prompt, sampling) for prompt in prompts]
        subject.step()
        subject.cancel(added[1])
        while subject.running or subject.queued:
            subject.step()
        assert subject.pages_used == 0 and not subject.ahead
        for request, alone in zip(added, plain.generate(prompts, sampling), strict=True):
            assert request.tokens == alone.tokens[: len(request.tokens)]
            assert request is added[1] or request.finish == "length"


@pytest.mark.parametrize(("guesses", "each"), [(0, 1), (1, 2), (3, 2)])
def test_a_layer_that_is_right_halves_the_steps(model, guesses, each):
    subject, steps = engine(counting(model), guesses=guesses), 0
    request = subject.add([5], Sampling(max_tokens=61))
    while subject.running or subject.queued:
        subject.step()
        steps += 1
    assert request.tokens == [*range(6, 67)]
    assert steps == 2 + -(-60 // each)  # one reads the prompt, and in the last nothing is left to start


def test_without_layers_ahead_guesses_are_of_the_text_alone():
    config = dataclasses.replace(CONFIG, ahead=0)
    subject = engine(jax.jit(lambda: Decoder(config, nnx.Rngs(0)))(), config, guesses=3)
    plain = engine(jax.jit(lambda: Decoder(config, nnx.Rngs(0)))(), config)
    assert subject.device.ahead is None
    sampling = Sampling(max_tokens=20)
    texts, others = ([r.tokens for r in e.generate(prompts_of(4, 3), sampling)] for e in (subject, plain))
    assert texts == others
