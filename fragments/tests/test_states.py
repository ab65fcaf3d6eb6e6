"""Recurrent states of an engine: those at page ends are shared, and none is kept longer than it is needed."""

import numpy as np

from generator.language import requires, splice
from generator.language.roles import (
    WIDE,
    Engine,
    EngineSettings,
    SamplingParams,
    check_scores,
    pool_is_whole,
    scoring,
    wide_model,
)

requires("states")


@splice("test_engine.cached")
def _(expected):
    expected = [0, 140, 128, 112]  # 112: a chunk of the first prompt ended there


@splice("test_engine.evicted")
def _(expected):
    expected = 0  # the state after 16 tokens is evicted too


@splice("test_engine.whole")
def _(engine):
    assert set(engine.states.slots) <= set(engine.running)
    pool_is_whole(engine.states.pool, [[*slots.values()] for slots in engine.states.slots.values()])


def test_a_chat_computes_its_last_turn_alone():
    """Each prompt is the text so far and three tokens more; all but these and less than two pages are cached."""
    subject = Engine(WIDE, wide_model(), set(), EngineSettings(max_sequences=4, max_length=160, page_size=4, chunk=16))
    rng = np.random.default_rng(0)
    sequence: list[int] = []
    for turn in range(20):
        prompt = [*sequence, *rng.integers(0, WIDE.vocab_size, 3).tolist()]
        (request,) = subject.generate([prompt], SamplingParams(max_tokens=4, ignore_eos=True))
        assert request.cached > len(prompt) - 3 - 2 * 4, turn
        sequence = request.sequence
    check_scores(scoring(wide_model(), len(sequence)), request)
    assert not subject.states.slots and not subject.states.last


def test_a_prompt_next_to_a_chunk_or_a_page():
    """A state of zeros or of padding would show."""
    subject = Engine(WIDE, wide_model(), set(), EngineSettings(max_sequences=4, max_length=32, page_size=4, chunk=8))
    logprobs = scoring(wide_model(), 32)
    for length in (1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17):
        (request,) = subject.generate([[*range(40, 40 + length)]], SamplingParams(max_tokens=6, ignore_eos=True))
        check_scores(logprobs, request)
