"""A server that takes newer weights, against engines that had them from the start."""

import jax
import pytest
from flax import nnx

from generator.language import requires, splice
from generator.language.roles import (
    WIDE,
    Decoder,
    Engine,
    EngineSettings,
    InputError,
    Request,
    SamplingParams,
    ask,
    check_scores,
    complete,
    replace_weights,
    run,
    save_hf,
    save_served,
    scoring,
    served,
    wide_model,
)

requires("reload_engine", "tests/engines", "tests/served")

SIZES = EngineSettings(max_sequences=4, max_length=64, page_size=4, chunk=16)
PROMPTS = [list(range(5, 5 + n)) for n in (9, 17, 13)]
SAMPLING = SamplingParams(max_tokens=20, ignore_eos=True)


def other_model() -> Decoder:
    return jax.jit(lambda: Decoder(WIDE, nnx.Rngs(7)))()


def generate(model: Decoder, prompts: list[list[int]], most: int) -> list[Request]:
    return Engine(WIDE, model, set(), SIZES).generate(prompts, SamplingParams(max_tokens=most, ignore_eos=True))


@pytest.mark.parametrize("recompute", [False, True])
def test_requests_have_the_newer_weights_from_the_next_step_on(recompute):
    engine, newer = Engine(WIDE, wide_model(), set(), SIZES), other_model()
    engine.generate(PROMPTS, SAMPLING)  # compiles, and caches the keys and values of these prompts
    compiled = run._cache_size()
    before = [engine.add(prompt, SAMPLING) for prompt in PROMPTS]
    while min(len(request.tokens) for request in before) < 5:
        engine.step()
    replace_weights(engine, newer, recompute)
    known = [list(request.tokens) for request in before]
    after = [engine.add(prompt, SAMPLING) for prompt in PROMPTS]
    while engine.queued or engine.running:
        engine.step()
    assert run._cache_size() == compiled
    for request in after:  # nothing that the older weights computed is shared
        check_scores(scoring(newer, 64), request)
    for request, tokens in zip(before, known, strict=True):
        assert len(request.tokens) == 20 and request.tokens[: len(tokens)] == tokens
        (alone,) = generate(newer, [request.prompt + tokens], 20 - len(tokens))
        assert (request.tokens[len(tokens) :] == alone.tokens) or not recompute
    assert [request.tokens for request in after] == [request.tokens for request in generate(newer, PROMPTS, 20)]


def test_weights_of_another_model_are_refused():
    engine = Engine(WIDE, wide_model(), set(), SIZES)
    with pytest.raises(InputError, match="another model"):
        replace_weights(engine, jax.tree.map(lambda x: x[:1], other_model()), False)


def test_a_server_reads_its_weights_anew(tmp_path):
    save_served(tmp_path / "served")
    key = {"Authorization": "Bearer loader"}
    with served(tmp_path / "served", "--model", "small", "--load-key", "loader") as (_, port, _):
        wanted = dict(prompt="abc", max_tokens=8, temperature=0, ignore_eos=True)
        first = complete(port, **wanted)["choices"][0]["text"]
        assert ask(port, "/v1/load", {})[0] == 401
        save_hf(WIDE, other_model(), tmp_path / "newer")
        weights = tmp_path / "served/model.safetensors"
        content = weights.read_bytes()
        weights.write_bytes(content[:1000])
        status, _, answer = ask(port, "/v1/load", {}, key)
        assert status == 409 and "the weights stay as they were" in answer["error"]["message"]
        assert complete(port, **wanted)["choices"][0]["text"] == first
        (tmp_path / "newer/model.safetensors").rename(weights)
        assert ask(port, "/v1/load", {}, key)[0] == 200
        assert complete(port, **wanted)["choices"][0]["text"] != first


@splice("test_serve_adapters.served", optional=True)
def _(engine, requests, alone):
    replace_weights(engine, jax.tree.map(lambda x: x, alone[""]), False)
    again = [engine.add(x.prompt, x.sampling) for x in requests[:3]]  # newer weights, and the same adapters
    while engine.queued or engine.running:
        engine.step()
    assert [x.tokens for x in again] == [x.tokens for x in requests[:3]] and not any(x.cached for x in again)
