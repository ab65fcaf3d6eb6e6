"""The engine: whatever runs beside it, a request gets what it gets alone, with training's log-probabilities."""

import collections
import math
from types import SimpleNamespace
from unittest import mock

import jax
import numpy as np
import pytest

from generator.language import point
from generator.language.roles import (
    WIDE,
    Engine,
    EngineSettings,
    InputError,
    QueueFull,
    SamplingParams,
    check_scores,
    compiled_steps,
    drafting,
    save_hf,
    scoring,
    wide_model,
)

PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 10, 11]]


LONG = [*range(3, 143)]  # longer than the window of a model that has one


MOST = 160


@pytest.fixture(scope="module")
def model():
    return wide_model()


@pytest.fixture(scope="module")
def forward(model):
    return scoring(model, MOST)


def engine(model, ends=frozenset(), **settings):
    sizes = {"max_sequences": 4, "max_length": MOST, "page_size": 4, "chunk": 16, "kv_cache_tokens": MOST}
    return Engine(WIDE, model, ends, EngineSettings(**sizes | settings))


def continuations(model, prompts, **settings):
    return [request.tokens for request in engine(model).generate(prompts, SamplingParams(**settings))]


def pool_is_whole(pool, sequences):
    """Checks that each page is free, or counts one reference per sequence that has it in its pages."""
    held = np.zeros(pool.pages, int)
    for pages in sequences:
        np.add.at(held, pages, 1)
    assert held.tolist() == pool.ref_count
    assert sorted(pool.free_pages) == [page for page in range(1, pool.pages) if not held[page]]
    assert pool.page_of == {digest: page for page, digest in pool.digests.items()}


def pages_are_whole(engine):
    pool_is_whole(engine.pool, [request.pages for request in engine.running])
    for request in engine.running:
        assert engine.batch.block_tables[request.slot, : len(request.pages)].tolist() == request.pages
    point("test_engine.whole", engine)


def test_log_probabilities_are_those_of_training(model, forward):
    wanted = SamplingParams(max_tokens=8, logprobs=5, prompt_logprobs=True)
    requests = engine(model).generate([*PROMPTS, LONG], wanted)
    for request in requests:
        assert len(request.prompt_logprobs) == len(request.prompt) - 1
        check_scores(forward, request)
        likeliest = forward(request.prompt + request.tokens).argmax(axis=-1)
        assert request.tokens == likeliest[len(request.prompt) - 1 : -1].tolist()


def test_prompts_are_scored_together(model, forward):
    subject = engine(model)
    subject.device.run = mock.Mock(wraps=subject.device.run)
    requests = subject.generate(
        [LONG[n : n + 4] for n in range(12)], SamplingParams(max_tokens=1, prompt_logprobs=True)
    )
    # four sequences of four tokens each: max_sequences, and all of a step's tokens
    assert subject.device.run.call_count == 3
    for request in requests:
        check_scores(forward, request)


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [(0, {}), (1, {}), (2, {"page_size": 16, "chunk": 64}), (3, drafting(3)), (4, {"max_sequences": 12})],
)
def test_whatever_runs_beside_it_a_request_gives_what_it_gives_alone(model, forward, seed, sizes):
    """Requests arrive and are cancelled at random, share prefixes, and need more pages than there are."""
    rng = np.random.default_rng(seed)
    subject = engine(model, **sizes)
    waiting, cancelled, sent = [], [], []
    for _ in range(12):
        shared = LONG[: rng.integers(0, 60)]
        prompt = [*shared, *rng.integers(0, WIDE.vocab_size, rng.integers(1, 20)).tolist()]
        draws = {"temperature": float(rng.choice([0, 1])), "seed": int(rng.integers(99)), "logprobs": 2}
        waiting.append((prompt, SamplingParams(max_tokens=int(rng.integers(1, 30)), **draws)))
    while waiting or subject.queued or subject.running:
        if waiting and rng.random() < 0.3:
            sent.append(subject.add(*waiting.pop()))
        if sent and rng.random() < 0.02:
            cancelled.append(sent[rng.integers(len(sent))])
            subject.cancel(cancelled[-1])
        subject.step()
        pages_are_whole(subject)
    assert subject.pages_used == 0
    alone = engine(model)
    for request in sent:
        check_scores(forward, request)
        (by_itself,) = alone.generate([request.prompt], request.sampling)
        assert request.tokens == by_itself.tokens[: len(request.tokens)]
        assert request.finish == ("length" if len(request.tokens) == request.sampling.max_tokens else "cancelled")


def test_cached_prefixes_are_not_computed_again(model, forward):
    subject = engine(model)
    (first,) = subject.generate([LONG], SamplingParams(max_tokens=4))
    prompts = [*LONG, *first.tokens, 7], [*LONG[:130], 9], LONG[:128]
    found = subject.generate(list(prompts), SamplingParams(max_tokens=4))
    with point("test_engine.cached"):
        expected = [0, 140, 128, 124]  # whole pages of 4, one token at least left
    assert [request.cached for request in (first, *found)] == expected
    for request in found:
        check_scores(forward, request)
    subject = engine(model)  # others evict pages, those at the end of a sequence first
    subject.generate([LONG, [5, *LONG]], SamplingParams(max_tokens=4))
    (again,) = subject.generate([LONG], SamplingParams(max_tokens=4))
    with point("test_engine.evicted"):
        expected = 16  # 4 of 40 pages: 36 were needed
    assert again.cached == expected and again.tokens == first.tokens


def test_log_probabilities_of_prompts_survive_preemption(model):
    """Requests are preempted more than once, while they decode too."""
    subject = engine(model, max_sequences=3, chunk=1, kv_cache_tokens=64)
    preempted = collections.Counter()
    preempt = subject.preempt
    subject.preempt = lambda request: (preempted.update([request]), preempt(request))
    wanted = {"ignore_eos": True, "prompt_logprobs": True}
    sizes = (21, 30), (2, 17), (3, 30)
    requests = [subject.add([*range(n)], SamplingParams(max_tokens=most, **wanted)) for n, most in sizes]
    while subject.queued or subject.running:
        subject.step()
    assert max(preempted.values()) > 1
    assert [len(request.prompt_logprobs) for request in requests] == [n - 1 for n, _ in sizes]


def test_there_is_room_for_all_running_sequences(model):
    subject = engine(model, max_sequences=4, max_length=64, page_size=40, kv_cache_tokens=0)
    assert subject.pages == 4 * 2
    with point("test_engine.no_room", model):
        with pytest.raises(
            InputError, match=r"--kv-cache-tokens, .*: no room for 500,000,001 pages: lower one of them"
        ):
            engine(model, kv_cache_tokens=2_000_000_000)
        with pytest.raises(
            InputError, match=r"no room for 2,147,483,648 pages: .*: 32 bits cannot count those of all layers"
        ):
            engine(model, kv_cache_tokens=2**31 - 1, page_size=1)
    assert (engine(model).room, engine(model, kv_cache_tokens=20).room) == (MOST, 20)


def test_the_cache_takes_the_memory_that_is_left(model, monkeypatch):
    def size(pages):
        """Returns the bytes of so many pages, with the one that is never read."""
        device = engine(model, kv_cache_tokens=4 * (pages - 1)).device
        return sum(x.nbytes for x in jax.tree.leaves(device.state))

    page = size(3) - size(2)  # of layers with a fixed number of pages
    others = 3 * size(2) - 2 * size(3)
    if not page:
        pytest.skip("all layers have a fixed number of pages")

    def pages_with(room):
        """Returns the pages of an engine on a device with so many bytes left, without the tenth kept free."""
        stats = {"bytes_limit": 20 * room, "bytes_in_use": 17 * room}
        monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(memory_stats=lambda: stats)])
        return engine(model, kv_cache_tokens=0).pages

    assert pages_with(12.5 * page + others) == 11  # and the one that is never read
    assert pages_with(1e6 * page + others) == 4 * MOST // 4
    with pytest.raises(InputError, match="the model leaves no memory for the KV cache"):
        pages_with(1.5 * page + others)


def test_nothing_is_compiled_after_the_warm_up(model):
    subject = engine(model)
    lines = list(subject.warm_up())
    compiled = compiled_steps()
    requests = [
        ([*LONG[:n]], SamplingParams(max_tokens=n, temperature=n % 2, prompt_logprobs=n % 3 == 0)) for n in range(1, 21)
    ]
    added = [subject.add(*request) for request in requests]
    while subject.queued or subject.running:
        subject.step()
    assert compiled_steps() == compiled and len(lines) == len(set(lines))
    assert [len(request.tokens) for request in added] == [*range(1, 21)]


def test_a_stop_token_ends_its_sequence_and_no_other(model):
    free = continuations(model, PROMPTS, max_tokens=10)
    ends = {free[0][4], free[1][6]}
    requests = engine(model, ends).generate(PROMPTS, SamplingParams(max_tokens=10))
    for request, row in zip(requests, free, strict=True):
        places = [place for place, token in enumerate(row) if token in ends]
        assert request.tokens == row[: places[0] + 1 if places else 10]
        assert request.finish == ("stop" if places else "length")
    assert {request.tokens[-1] for request in requests} >= ends
    assert [
        r.tokens for r in engine(model, ends).generate(PROMPTS, SamplingParams(max_tokens=10, ignore_eos=True))
    ] == free


@pytest.mark.parametrize(("seed", "sizes"), [(None, {}), (0, {}), (0, {"max_sequences": 12} | drafting(3))])
def test_prompts_of_a_list_are_sampled_independently(model, seed, sizes):
    """One prompt, eight times, gives eight answers; with a seed, the same eight whatever runs beside them."""
    subject = engine(model, **sizes)
    sampling = SamplingParams(max_tokens=10, temperature=1.5, seed=seed)
    first, again = ([x.tokens for x in subject.generate([PROMPTS[0]] * 8, sampling)] for _ in range(2))
    assert len({*map(tuple, first)}) == len({*map(tuple, again)}) == 8
    assert (first == again) == (seed is not None)
    beside = [subject.add(LONG[n:], sampling) for n in range(3)]
    assert (first == [x.tokens for x in subject.generate([PROMPTS[0]] * 8, sampling)]) == (seed is not None)
    assert all(x.finish for x in beside)
    (alone,) = engine(model).generate(PROMPTS[:1], sampling)
    assert (first[0] == alone.tokens) == (seed is not None)


def test_sampling_follows_the_seed(model):
    settings = {"max_tokens": 10, "temperature": 1.5}
    sampled = [continuations(model, PROMPTS, seed=seed, **settings) for seed in (0, 0, 1)]
    assert sampled[0] == sampled[1] != sampled[2]
    greedy = [continuations(model, PROMPTS, max_tokens=10, seed=seed) for seed in (0, 1)]
    assert greedy[0] == greedy[1]
    assert continuations(model, PROMPTS, top_k=1, **settings) == greedy[0]


@pytest.mark.parametrize("prompts", [PROMPTS, [LONG]], ids=["short", "long"])
def test_greedy_equals_transformers(model, tmp_path, prompts):
    torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install '.[test]'")
    transformers = pytest.importorskip("transformers", reason="needs torch and transformers: pip install '.[test]'")
    save_hf(WIDE, model, tmp_path / "hf")
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", attn_implementation="eager", dtype="float32"
    )
    settings = {"max_new_tokens": 10, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    for prompt, row in zip(prompts, continuations(model, prompts, max_tokens=10), strict=True):
        ids = torch.tensor([prompt])
        assert reference.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0].tolist() == prompt + row


def test_what_can_never_be_served_is_an_error(model):
    context = WIDE.context_length
    subject = engine(model, max_length=0, kv_cache_tokens=0, queue=1)
    with pytest.raises(InputError, match=f"the prompt has {context - 2} tokens, the context {context}: lower it"):
        subject.add([1] * (context - 2), SamplingParams(max_tokens=3))
    with pytest.raises(InputError, match="--max-length 1: must be from 2 to the context length"):
        engine(model, max_length=1)
    with pytest.raises(InputError, match="start it with bos"):
        subject.add([], SamplingParams())
    with pytest.raises(InputError, match=f"token {WIDE.vocab_size} of another tokenizer"):
        subject.add([WIDE.vocab_size], SamplingParams(max_tokens=2))
    for bias in math.nan, "1":
        with pytest.raises(InputError, match="logit_bias: must be numbers"):
            subject.add([1], SamplingParams(logit_bias={7: bias}))
    with pytest.raises(InputError, match=r"the KV cache holds 8 tokens, not 7 \+ 2"):
        engine(model, kv_cache_tokens=8).add([1] * 7, SamplingParams(max_tokens=2))
    subject.add([1] * (context - 2), SamplingParams(max_tokens=2))  # just fits
    with pytest.raises(QueueFull):
        subject.add([1], SamplingParams(max_tokens=2))


@pytest.mark.parametrize(
    "setting",
    [
        {"max_tokens": 0},
        {"max_tokens": 10**30},
        {"temperature": -1},
        {"temperature": math.nan},
        {"top_p": 0},
        {"top_p": 2},
        {"top_k": WIDE.vocab_size + 1},
        {"top_k": -1},
        {"min_p": 1.5},
        {"seed": -1},
        {"seed": 10**30},
        {"logprobs": 21},
        {"repetition_penalty": 0},
    ],
)
def test_a_setting_without_meaning_is_an_error(model, setting):
    with pytest.raises(InputError, match=f"--{next(iter(setting)).replace('_', '-')}"):
        engine(model).add([1], SamplingParams(**{"max_tokens": 10} | setting))
