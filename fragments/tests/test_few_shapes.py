"""A server with few shapes of steps at first."""

import jax

from generator.language import requires
from generator.language.roles import (
    WIDE,
    Engine,
    EngineSettings,
    SamplingParams,
    begin_with_few,
    wide_model,
)

requires("few_shapes", "tests/engines")

PROMPTS = [list(range(5, 5 + n)) for n in (9, 17, 13)]


def test_few_shapes_serve_until_all_are_compiled():
    compilations = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, _, **__: compilations.append(name))
    sizes = EngineSettings(max_sequences=3, max_length=64, page_size=4, chunk=16)  # shapes that no other test compiles
    subject = Engine(WIDE, wide_model(), set(), sizes)
    others = begin_with_few(subject.device)
    few = list(subject.warm_up())
    sampling = SamplingParams(max_tokens=10)
    before = [request.tokens for request in subject.generate(PROMPTS, sampling)]
    every = list(others)
    assert {*few} < {*every}
    compilations.clear()
    assert list(subject.warm_up()) == every
    assert not [name for name in compilations if "backend_compile" in name]
    assert [request.tokens for request in subject.generate(PROMPTS, sampling)] == before
