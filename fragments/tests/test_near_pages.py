"""Pages of layers that see the nearest tokens only: they are given back in time, and texts stay what they are."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax import nnx

from generator.language import requires
from generator.language.roles import PRESETS, SMALL, Decoder, Engine, EngineSettings, InputError, Sampling, seen_at_most

requires("sliding_window or chunked_attention")

CONFIG = dataclasses.replace(SMALL, width=PRESETS["tiny"].width, init_std=0.1)


SEEN = seen_at_most(CONFIG)


LONGEST = 2 * SEEN + 64


TEXT = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (2, 2 * SEEN - 7)).tolist()


@pytest.fixture(scope="module")
def model():
    return jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))()


def engine(model, **settings):
    sizes = {"max_rows": 1, "max_length": LONGEST, "page_size": 4, "chunk": 16, "guesses": 2}
    return Engine(CONFIG, model, set(), EngineSettings(**sizes | {"cache_tokens": 6 * SEEN + 400} | settings))


@jax.jit
def forward(model, tokens):
    return jax.nn.log_softmax(model(tokens))


def check_against_training(model, request):
    """Its scores are those of one pass over the whole text."""
    text = np.zeros((1, LONGEST), np.int32)
    text[0, : len(request.text)] = request.text
    places = np.arange(len(request.prompt) - 1, len(request.text) - 1)
    np.testing.assert_allclose(request.logprobs, forward(model, text)[0, places, request.tokens], atol=1e-4)


def test_a_text_holds_the_pages_that_its_next_token_sees(model):
    subject, most = engine(model), 0
    request = subject.add(TEXT[0], Sampling(max_tokens=40))
    while subject.queued or subject.running:
        subject.step()
        most = max([most, *map(len, subject.near.held.values())])
        assert len(subject.near.pool.free) == subject.near.pool.pages - 1 - sum(map(len, subject.near.held.values()))
    assert SEEN // 4 <= most <= (SEEN + 16) // 4 + 1 < len(TEXT[0]) // 4
    assert not subject.near.held
    check_against_training(model, request)


def test_longer_texts_take_pages_of_some_layers_only(model):
    config = dataclasses.replace(CONFIG, context_length=16 * SEEN)

    def pages(length):
        """Of all layers together, for a text of that length."""
        settings = EngineSettings(max_rows=1, max_length=length, page_size=4, chunk=16)
        return Engine(config, model, set(), settings).device.key.shape[0]

    grown, longer = pages(16 * SEEN) - pages(8 * SEEN), 2 * SEEN
    assert grown < CONFIG.layers * longer and grown % longer == 0


def test_pages_that_a_device_has_no_room_for_are_an_error(model, monkeypatch):
    stats = {"bytes_limit": 2**20, "bytes_in_use": 0}
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(memory_stats=lambda: stats)])
    with pytest.raises(InputError, match=r"--max-rows 64: layers that see .* need \d+\.\d GiB .*: give a lower one"):
        engine(model, max_rows=64, cache_tokens=0)


def test_what_other_texts_have_written_over_is_computed_again(model):
    subject, sampling = engine(model), Sampling(max_tokens=3)
    first, again, other = (subject.generate([TEXT[i]], sampling)[0] for i in (0, 0, 1))
    assert (first.cached, again.cached, other.cached) == (0, 2 * SEEN - 8, 0)
    assert len(subject.pool.found) == 2 * (len(TEXT[0]) // 4)  # those of both, in layers that see all tokens
    (later,) = subject.generate([TEXT[0]], sampling)
    assert later.cached < again.cached  # pages of the layers that see little are gone
    assert first.tokens == again.tokens == later.tokens
    for request in again, other, later:
        check_against_training(model, request)
