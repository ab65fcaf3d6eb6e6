"""Speculative decoding with prompt lookup: fewer steps, and the same output."""

import dataclasses
import sys

import pytest

from generator.language import point, requires
from generator.language.roles import WIDE, Engine, EngineSettings, Request, SamplingParams, draft_ngram, wide_model

requires("draft_ngram")


def engine(**settings):
    return Engine(WIDE, wide_model(), set(), EngineSettings(max_sequences=4, max_length=96, page_size=4, **settings))


@pytest.mark.parametrize(("wrong", "each"), [(4, 5), (2, 3), (0, 1)])
def test_speculative_decoding_saves_steps_and_does_not_change_the_output(monkeypatch, wrong, each):
    prompt = [9, 10, 11]  # hot, for many tokens
    sampling = SamplingParams(max_tokens=60, temperature=2, seed=1)
    (alone,) = engine().generate([prompt], sampling)
    tokens = alone.tokens

    def draft_well(request, most):
        """Returns the tokens that follow, with one of them wrong."""
        following = tokens[len(request.tokens) :][:most]
        return [token if i != wrong else (token + 1) % WIDE.vocab_size for i, token in enumerate(following)]

    monkeypatch.setattr(sys.modules[Engine.__module__], "draft_ngram", draft_well)
    subject = engine(draft_tokens=4)
    steps = 0
    point("test_draft_ngram.engine", subject)
    request = subject.add(prompt, sampling)
    while subject.running or subject.queued:
        subject.step()
        steps += 1
    assert request.tokens == tokens
    assert steps == 2 + -(-59 // each)  # one prefills, and the last only collects
    place = next(i for i in range(1, 60) if i % each == 1 % each and tokens.index(tokens[i]) == i)
    (ended,) = subject.generate([prompt], dataclasses.replace(sampling, stop_token_ids=(tokens[place],)))
    assert ended.tokens == tokens[: place + 1] and ended.finish == "stop"  # drafts after it are dropped


def test_prompt_lookup_drafts_what_followed_before():
    assert draft_ngram(Request([7, 1, 2, 3, 4, 1, 2, 3], SamplingParams()), 6) == [4, 1, 2, 3, 4, 1]
    # the latest match counts
    assert draft_ngram(Request([1, 2, 3, 5], SamplingParams(), tokens=[1, 2, 3, 6, 1, 2, 3]), 1) == [6]
    assert draft_ngram(Request([1, 2, 3, 4, 1, 2], SamplingParams()), 6) == []
