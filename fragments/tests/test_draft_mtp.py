"""Draft tokens of the MTP layer: the same as in one pass over a sequence, fewer steps, and unchanged output."""

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
    RequestStatus,
    SamplingParams,
    hidden_mtp,
    loss,
)

requires("mtp", "mtp_loss", "untied_head")
excludes("sliding_window", "chunked_attention")

CONFIG = dataclasses.replace(SMALL, init_std=0.1)


LONGEST = 96


@pytest.fixture(scope="module")
def model():
    return jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))()


def engine(model, config=CONFIG, **settings):
    sizes = {"max_sequences": 3, "max_length": LONGEST, "page_size": 4, "chunk": 16, "kv_cache_tokens": 2 * LONGEST}
    return Engine(config, model, set(), EngineSettings(**sizes | settings))


def logits_mtp(model: Decoder, tokens: Array) -> Array:
    """Computes logits [B, T - 1, V] of the first MTP layer for tokens [B, T] in one pass without a KV cache."""
    x, *_ = jax.tree.leaves(model.hidden(tokens[:, :-1]))
    positions = jnp.arange(tokens.shape[1] - 1)[None]
    x, _ = hidden_mtp(model, x, tokens[:, 1:], positions, None, None, CONFIG)
    return model.embedding.logits(x, model.embedding.kernel())


def prompts_of(seed, count):
    """Draws prompts of which some share a prefix and some repeat themselves."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, 7, 60).tolist()
    cuts, ends = rng.integers(0, 50, count), rng.integers(1, 12, count)
    return [shared[:cut] + rng.integers(0, CONFIG.vocab_size, n).tolist() for cut, n in zip(cuts, ends, strict=True)]


def test_one_pass_is_that_of_training(model):
    tokens = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (2, 33), dtype=np.int32)
    rows = tokens[:, 1:].shape
    places = np.arange(32, dtype=np.int32)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "positions": np.broadcast_to(places, rows)}
    batch |= {"segment_ids": np.ones(rows, np.int32), "weights": np.ones(rows, np.float32)}
    _, sums = jax.jit(lambda model: loss(model, batch, CONFIG))(model)
    logprobs = jax.nn.log_softmax(jax.jit(logits_mtp)(model, tokens))[:, :-1]
    expected = -np.take_along_axis(np.asarray(logprobs), tokens[:, 2:, None], axis=2).sum()
    np.testing.assert_allclose(sums["mtp_cross_entropy"][0], expected, rtol=1e-5)


@pytest.mark.parametrize("sizes", [{}, {"page_size": 1, "chunk": 7}, {"page_size": 16, "chunk": 64, "draft_tokens": 3}])
def test_the_engine_drafts_what_one_pass_over_the_sequence_predicts(model, sizes):
    subject = engine(model, **{"draft_tokens": 1} | sizes)
    made = []
    start = subject.start

    def start_and_keep(rows, length, requests, score_all):
        made.extend(
            (request.sequence, subject.mtp_drafts[request])
            for request in requests
            if request.status is RequestStatus.DECODE
        )
        return start(rows, length, requests, score_all)

    subject.start = start_and_keep
    prompts = [[first, *prompt] for first, prompt in enumerate(prompts_of(1, 4))]  # no shared prefix
    subject.generate(prompts, SamplingParams(max_tokens=15, temperature=1.0))
    full = jax.jit(logits_mtp)
    assert len(made) > 30
    for sequence, (drafted,) in made:
        padded = np.zeros((1, LONGEST), np.int32)
        padded[0, : len(sequence)] = sequence
        logits = full(model, padded)[0, len(sequence) - 2]
        assert logits[drafted] > logits.max() - 1e-4


def counting(model):
    """Returns the model with layers that add nothing: each token predicts the next, as does the MTP layer."""
    D = CONFIG.width
    table = np.random.default_rng(0).normal(size=model.embedding.table.shape)
    table = (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)
    model = jax.tree.map(jnp.zeros_like, model)
    model.norm.scale = model.norm.scale.replace(jnp.ones(D))
    for norm in model.mtp.token_norm, model.mtp.norm:
        norm.scale = norm.scale.replace(jnp.ones_like(norm.scale.get_value()))
    join = jnp.zeros((2 * D, D)).at[:D].set(jnp.eye(D))  # the following token alone
    model.mtp.join.kernel = model.mtp.join.kernel.replace(jnp.tile(join, (CONFIG.mtp_layers, 1, 1)))
    model.embedding.table = model.embedding.table.replace(jnp.asarray(table))
    model.embedding.head = model.embedding.head.replace(jnp.roll(table, 1, axis=0).T)
    return model


@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (nnx.clone, {"kv_cache_tokens": LONGEST, "max_sequences": 4, "draft_tokens": 3}),  # most are wrong
        (counting, {}),  # most are right
        (counting, {"page_size": 1, "chunk": 5, "max_sequences": 2}),
        (counting, {"page_size": 16, "chunk": 64, "draft_tokens": 3}),
        (counting, {"kv_cache_tokens": LONGEST, "max_sequences": 4, "draft_tokens": 2}),
    ],
)
def test_speculative_decoding_does_not_change_the_output(model, made, sizes):
    model = made(model)
    plain, subject = engine(model), engine(model, **{"draft_tokens": 1} | sizes)
    for temperature in 0.0, 1.0:
        sampling = SamplingParams(max_tokens=20, temperature=temperature, seed=3)
        prompts = prompts_of(2, 9)
        added = [subject.add(prompt, sampling) for prompt in prompts]
        subject.step()
        subject.cancel(added[1])
        while subject.running or subject.queued:
            subject.step()
        assert subject.pages_used == 0 and not subject.mtp_drafts
        for request in added:
            (alone,) = plain.generate([request.prompt], sampling)
            assert request.tokens == alone.tokens[: len(request.tokens)]
            assert request is added[1] or request.finish == "length"


@pytest.mark.parametrize(("draft_tokens", "each"), [(0, 1), (1, 2), (3, 2)])
def test_a_layer_that_is_always_right_halves_the_steps(model, draft_tokens, each):
    subject = engine(counting(model), draft_tokens=draft_tokens)
    steps = 0
    request = subject.add([5], SamplingParams(max_tokens=61))
    while subject.running or subject.queued:
        subject.step()
        steps += 1
    assert request.tokens == [*range(6, 67)]
    assert steps == 2 + -(-60 // each)  # one prefills, and the last only collects


def test_without_mtp_layers_drafts_are_by_prompt_lookup():
    config = dataclasses.replace(CONFIG, mtp_layers=0)
    subject = engine(jax.jit(lambda: Decoder(config, nnx.Rngs(0)))(), config, draft_tokens=3)
    plain = engine(jax.jit(lambda: Decoder(config, nnx.Rngs(0)))(), config)
    assert subject.device.state.mtp_layer is None
    sampling = SamplingParams(max_tokens=20)
    tokens, others = ([r.tokens for r in e.generate(prompts_of(4, 3), sampling)] for e in (subject, plain))
    assert tokens == others
