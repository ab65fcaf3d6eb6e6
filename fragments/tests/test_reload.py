"""A server that takes newer weights, against engines that had them from the start."""

import time

import jax
import pytest
from flax import nnx

from generator.language import requires, splice
from generator.language.roles import (
    PACKAGE,
    WIDE,
    Decoder,
    Engine,
    EngineSettings,
    InputError,
    Linear,
    Request,
    SamplingParams,
    ask,
    check_scores,
    compiled_steps,
    complete,
    replace_weights,
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
    engine = Engine(WIDE, wide_model(), set(), SIZES)
    newer = other_model()
    engine.generate(PROMPTS, SAMPLING)  # compiles, and caches the keys and values of these prompts
    compiled = compiled_steps()
    before = [engine.add(prompt, SAMPLING) for prompt in PROMPTS]
    while min(len(request.tokens) for request in before) < 5:
        engine.step()
    replace_weights(engine, newer, recompute)
    known = [list(request.tokens) for request in before]
    after = [engine.add(prompt, SAMPLING) for prompt in PROMPTS]
    while engine.queued or engine.running:
        engine.step()
    assert compiled_steps() == compiled
    for request in after:  # nothing that the older weights computed is shared
        check_scores(scoring(newer, 64), request)
    for request, tokens in zip(before, known, strict=True):
        assert len(request.tokens) == 20 and request.tokens[: len(tokens)] == tokens
        (alone,) = generate(newer, [request.prompt + tokens], 20 - len(tokens))
        assert (request.tokens[len(tokens) :] == alone.tokens) or not recompute
    assert [request.tokens for request in after] == [request.tokens for request in generate(newer, PROMPTS, 20)]


def test_weights_of_another_model_are_refused():
    engine = Engine(WIDE, wide_model(), set(), SIZES)
    smaller = jax.tree.map(lambda x: x[:1], other_model())
    another = other_model()
    linear = next(module for _, module in nnx.iter_modules(another) if isinstance(module, Linear))
    linear.equation = linear.equation.replace("T", "S")  # its arrays have the same shapes
    for model in smaller, another:
        with pytest.raises(InputError, match="another model"):
            replace_weights(engine, model, False)


# the server, without collection of cycles: /health answers with how often its arrays hold its weights, now and at most
COUNTING = """
import gc, sys, threading, time, jax
from {package} import serve, server

most = 0.0
def hold(engine):
    state = engine.device.state, engine.device.slots
    weights, rest = (sum(x.nbytes for x in jax.tree.leaves(tree)) for tree in (engine.device.model, state))
    return (sum(x.nbytes for x in jax.live_arrays()) - rest) / weights
def watch(engine):
    global most
    while True:
        most = max(most, hold(engine))
        time.sleep(0.001)
async def health(self, _):
    global most
    if not most:
        threading.Thread(target=watch, args=(self.engine.engine,), daemon=True).start()
    most, found = 0.0, [hold(self.engine.engine), most]
    return server.as_json(found)
server.Server.health = health
gc.disable()
serve.main()
"""


def test_a_server_reads_its_weights_anew(tmp_path):
    """Its memory has them once, and twice while it loads them: newer ones, damaged ones and those of another model."""
    save_served(tmp_path / "served")
    key = {"Authorization": "Bearer loader"}
    flags = "--model", "small", "--load-key", "loader", "--kv-cache-tokens", "512", "--max-sequences", "2"
    counting = "-c", COUNTING.replace("{package}", PACKAGE.name)
    with served(tmp_path / "served", *flags, program=counting) as (_, port, _):
        wanted = dict(prompt="abc", max_tokens=8, temperature=0, ignore_eos=True)
        weights = tmp_path / "served/model.safetensors"
        texts = []

        def load(content: bytes) -> int:
            weights.write_bytes(content)
            status, _, answer = ask(port, "/v1/load", {}, key)
            assert status == 200 or "the weights stay as they were" in answer["error"]["message"]
            texts.append(complete(port, **wanted)["choices"][0]["text"])
            counts = [ask(port, "/health")[2]]
            deadline = time.monotonic() + 60
            while counts[-1][0] > 1.1 and time.monotonic() < deadline:  # until a step that compiles beside it has begun
                counts.append(ask(port, "/health")[2])
            assert counts[-1][0] < 1.1 and (status == 409 or 1.9 < max(counts[0]) < 2.3), (status, counts)
            return status

        texts.append(complete(port, **wanted)["choices"][0]["text"])
        assert ask(port, "/health")[2][0] < 1.1
        assert ask(port, "/v1/load", {})[0] == 401
        save_hf(WIDE, other_model(), tmp_path / "newer")
        first, newer = (path.read_bytes() for path in (weights, tmp_path / "newer/model.safetensors"))
        statuses = [load(content) for content in (first[:1000], first[:-1000], newer, newer, first[:-1000], first)]
        assert statuses == [409, 409, 200, 200, 409, 200]
        assert texts[0] == texts[1] == texts[2] == texts[6] != texts[3] == texts[4] == texts[5]


@splice("test_serve_adapters.served", optional=True)
def _(engine, requests, alone):
    replace_weights(engine, jax.tree.map(lambda x: x, alone[""]), False)
    again = [engine.add(x.prompt, x.sampling) for x in requests[:3]]  # newer weights, and the same adapters
    while engine.queued or engine.running:
        engine.step()
    assert [x.tokens for x in again] == [x.tokens for x in requests[:3]] and not any(x.cached for x in again)
