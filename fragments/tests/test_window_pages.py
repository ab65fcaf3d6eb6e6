"""Pages of layers with sliding-window or chunked attention: freed in time, with unchanged log-probabilities."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    WIDE,
    Engine,
    EngineSettings,
    InputError,
    SamplingParams,
    check_scores,
    drafting,
    scoring,
    wide_model,
    window_size,
)

requires("sliding_window or chunked_attention")

SEEN = window_size(WIDE)


LONGEST = 2 * SEEN + 64


PROMPTS = np.random.default_rng(0).integers(0, WIDE.vocab_size, (2, 2 * SEEN - 7)).tolist()


@pytest.fixture(scope="module")
def model():
    return wide_model()


def engine(model, **settings):
    sizes = {"max_sequences": 1, "max_length": LONGEST, "page_size": 4, "chunk": 16} | drafting(2)
    return Engine(WIDE, model, set(), EngineSettings(**sizes | {"kv_cache_tokens": 6 * SEEN + 400} | settings))


def test_a_sequence_holds_the_pages_that_its_next_token_sees(model):
    subject = engine(model)
    most = 0
    request = subject.add(PROMPTS[0], SamplingParams(max_tokens=40))
    while subject.queued or subject.running:
        subject.step()
        most = max([most, *map(len, subject.window.block_tables.values())])
        assert len(subject.window.pool.free_pages) == subject.window.pool.pages - 1 - sum(
            map(len, subject.window.block_tables.values())
        )
    assert SEEN // 4 <= most <= (SEEN + 16) // 4 + 1 < len(PROMPTS[0]) // 4
    assert not subject.window.block_tables
    check_scores(scoring(model, LONGEST), request)


def test_longer_sequences_need_pages_of_some_layers_only(model):
    config = dataclasses.replace(WIDE, context_length=16 * SEEN)

    def pages(length):
        """Returns the pages of all layers for a sequence of that length."""
        settings = EngineSettings(max_sequences=1, max_length=length, page_size=4, chunk=16)
        return sum(map(len, jax.tree.leaves(Engine(config, model, set(), settings).device.state.key)))

    grown = pages(16 * SEEN) - pages(8 * SEEN)
    longer = 2 * SEEN
    assert grown < WIDE.layers * longer and grown % longer == 0


def test_pages_that_a_device_has_no_room_for_are_an_error(model, monkeypatch):
    stats = {"bytes_limit": 2**20, "bytes_in_use": 0}
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(memory_stats=lambda: stats)])
    with pytest.raises(InputError, match=r"--max-sequences 64: layers whose state .* need \d+\.\d GiB .*: lower it"):
        engine(model, max_sequences=64, kv_cache_tokens=0)


def test_evicted_pages_are_computed_again(model):
    subject = engine(model)
    sampling = SamplingParams(max_tokens=3)
    first, again, other = (subject.generate([PROMPTS[i]], sampling)[0] for i in (0, 0, 1))
    assert (first.cached, again.cached, other.cached) == (0, 2 * SEEN - 8, 0)
    assert len(subject.pool.page_of) == 2 * (len(PROMPTS[0]) // 4)  # of both prompts, in full-attention layers
    (later,) = subject.generate([PROMPTS[0]], sampling)
    assert later.cached < again.cached  # pages of layers with windows were evicted
    assert first.tokens == again.tokens == later.tokens
    for request in again, other, later:
        check_scores(scoring(model, LONGEST), request)
