"""Random schedules of engines with recurrent states, selected keys or two pools of pages: each text is what one pass over it gives.

SCHEDULES=500 python -m pytest -s tests/families/test_schedules.py    that many of each family, in half an hour
"""

from __future__ import annotations

import dataclasses
import importlib
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from selected import mostly_slow

from families.weaving import woven

SCHEDULES = int(os.environ.get("SCHEDULES", "6"))
LONGEST = 64
RANK_GAP = 3e-5  # ranks of indexers are near 5: two orders of a sum are up to 1e-5 apart
# sizes of a family: a hybrid with a short convolution, with a delta rule, with Mamba-2, Mamba-2 alone and beside attention,
# and with layers that keep nothing; an indexer; heads of two sizes; a delta rule beside latents
SIZES = {
    "lfm2": {"layers": 6},
    "qwen3_5": {"layers": 4},
    "bamba": {"layers": 10},
    "mamba2": {"layers": 2},
    "falcon_h1": {"layers": 2, "heads": 4},
    "nemotron_h": {"layers": 19, "heads": 4, "head_size": 8},
    "deepseek_v32": {"layers": 3},
    "minimax": {"layers": 8, "head_size": 8, "init_std": 0.1},  # with 0.2, noise of 0.5 % in weights moves it by a nat
    "kimi_linear": {"layers": 7, "delta_head_size": 16, "experts": 4, "init_std": 0.1},  # which tokens use all of
    "gemma4": {"window": 9, "heads": 4, "kv_heads": 2, "head_size": 8, "global_head_size": 12},
}
SETTINGS = (
    {"page_size": 4, "chunk": 8, "kv_cache_tokens": 96},
    {"page_size": 8, "chunk": 12, "kv_cache_tokens": 128, "draft_tokens": 3},
    {"page_size": 3, "chunk": 7, "kv_cache_tokens": 75, "draft_tokens": 2, "state_snapshots": 3},
)


def requests_of(rng: np.random.Generator, shared: list[int], page: int, chunk: int):
    """Prompts and sampling: a part of a common text, which ends next to pages and chunks, and a few tokens more."""
    for _ in range(rng.integers(2, 8)):
        common = int(rng.choice([0, page, 2 * page, chunk, chunk + page, 2 * chunk]) + rng.integers(-1, 2))
        more = rng.integers(0, 64, rng.integers(1, 4)).tolist()
        prompt = shared[: max(common, 0)] + more * int(rng.integers(1, 3))  # repeated: draft tokens are found
        yield prompt, int(rng.integers(1, LONGEST - len(prompt))) // 2 + 1, float(rng.choice([0, 0, 1]))


def small(package, family: str):
    sizes = dict(width=32, vocab_size=64, context_length=LONGEST, init_std=0.2, dtype="float32")
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes | SIZES[family])
    return config, jax.jit(lambda: package.model.Decoder(config, nnx.Rngs(0)))()


def record_rank_gaps(package, gaps: list, monkeypatch) -> None:
    """Makes one pass add, for each layer, how far the last selected key [B, T] of a query ranks above the next one."""
    module = importlib.import_module(f"{package.engine.__package__}.sparse_attention")

    def highest(scores, count, highest=module.highest):
        last, following = jnp.moveaxis(jax.lax.top_k(scores, count + 1)[0][..., -2:], -1, 0)
        jax.debug.callback(gaps.append, jnp.where(following > -jnp.inf, last - following, jnp.inf))
        return highest(scores, count)

    monkeypatch.setattr(module, "highest", highest)


@pytest.mark.parametrize("family", mostly_slow(SIZES, "lfm2"))
def test_any_schedule_gives_what_one_pass_gives(family, tmp_path, monkeypatch):
    package = woven(family, "cpu", tmp_path)
    engine = package.engine
    config, model = small(package, family)
    gaps, tokens_compared, tokens_left_out = [], 0, 0
    if hasattr(config, "index_keys"):
        record_rank_gaps(package, gaps, monkeypatch)
    one_pass = jax.jit(lambda tokens: jax.nn.log_softmax(model(tokens)[0]))
    worst, preempted, cached = 0.0, 0, 0
    known = engine.EngineSettings.__dataclass_fields__.keys()  # snapshots are of recurrent states alone
    for number, settings in enumerate({it: named[it] for it in named.keys() & known} for named in SETTINGS):
        subject = engine.Engine(
            config, model, set(), engine.EngineSettings(max_sequences=4, max_length=LONGEST, **settings)
        )
        evicted = []
        subject.preempt = lambda request, seen=evicted, preempt=subject.preempt: (
            seen.append(request),
            preempt(request),
        )
        for schedule in range(number, SCHEDULES, len(SETTINGS)):
            rng = np.random.default_rng(schedule)
            shared = rng.integers(0, 64, LONGEST).tolist()
            waiting, sent = [*requests_of(rng, shared, settings["page_size"], settings["chunk"])], []
            while waiting or subject.queued or subject.running:
                if waiting and rng.random() < 0.4:
                    prompt, most, temperature = waiting.pop()
                    sampling = engine.SamplingParams(max_tokens=most, temperature=temperature, seed=schedule)
                    sent.append(subject.add(prompt, sampling))
                if sent and rng.random() < 0.02:
                    subject.cancel(sent[rng.integers(len(sent))])
                subject.step()
            assert not any(subject.pool.ref_count)
            if hasattr(subject, "states"):
                assert not subject.states.slots and not subject.states.last and not any(subject.states.pool.ref_count)
            for request in sent:
                text = np.zeros((1, LONGEST), np.int32)
                text[0, : len(request.sequence)] = request.sequence
                gaps.clear()
                expected = np.asarray(one_pass(text))[len(request.prompt) - 1 : len(request.sequence) - 1]
                jax.effects_barrier()
                # from a place on where rounding decides which keys are selected, texts are not compared
                settled = len(request.sequence)
                if gaps:
                    settled = np.flatnonzero([*(np.min(gaps, axis=(0, 1)) < RANK_GAP), True])[0]
                compared = max(min(settled - len(request.prompt) + 1, len(request.tokens)), 0)
                tokens_compared += compared
                tokens_left_out += len(request.tokens) - compared
                expected, tokens = expected[:compared], request.tokens[:compared]
                found = np.array(request.logprobs)[:compared]
                worst = max(worst, *np.abs(expected[range(compared), tokens] - found), 0)
                if request.sampling.temperature == 0:
                    worst = max(worst, *(expected.max(axis=-1) - found), 0)
                cached += request.cached
        preempted += len(evicted)
    print(
        f"\n{family}: {SCHEDULES} schedules, at most {worst:.1e} apart; {preempted} preempted, {cached} tokens cached, "
        f"{tokens_compared} compared, {tokens_left_out} left out"
    )
    assert tokens_left_out < 0.1 * tokens_compared
    assert worst < 1e-4 and cached and (preempted or SCHEDULES < 100)


@pytest.mark.slow
@pytest.mark.parametrize("family", SIZES)
def test_a_saved_model_is_served_as_it_is(family, tmp_path):
    package = woven(family, "cpu", tmp_path)
    engine, weights = package.engine, importlib.import_module(f"{package.engine.__package__}.weights")
    config, model = small(package, family)
    package.huggingface.save_hf(config, model, tmp_path / "hf")
    scored = []
    for settings in (None, {}, {"int8": True}):
        if settings is not None:
            settings = weights.ModelSettings(hf=str(tmp_path / "hf"), dtype="float32", **settings)
            config, model, _ = weights.load_to_serve(settings)
        subject = engine.Engine(config, model, set(), engine.EngineSettings(max_sequences=1, max_length=LONGEST))
        (request,) = subject.generate([[*range(20)]], engine.SamplingParams(max_tokens=5, prompt_logprobs=True))
        scored.append([*request.prompt_logprobs])
    np.testing.assert_allclose(scored[0], scored[1], atol=1e-5)
    assert 0 < np.abs(np.subtract(scored[0], scored[2])).mean() < 0.1


def test_a_model_without_a_layer_that_attends_is_served(tmp_path):
    """Where the first period of layers is not full."""
    package = woven("lfm2", "cpu", tmp_path)
    engine = package.engine
    config = dataclasses.replace(small(package, "lfm2")[0], layers=2)
    model = jax.jit(lambda: package.model.Decoder(config, nnx.Rngs(0)))()
    subject = engine.Engine(config, model, set(), engine.EngineSettings(max_sequences=2, max_length=LONGEST, chunk=8))
    (request,) = subject.generate([[*range(20)]], engine.SamplingParams(max_tokens=9))
    expected = jax.nn.log_softmax(model(np.array([request.sequence]))[0])[19:-1]
    np.testing.assert_allclose(request.logprobs, expected.max(axis=-1), atol=1e-5)
