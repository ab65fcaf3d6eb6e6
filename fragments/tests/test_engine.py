"""The engine: whatever runs beside it, a request gets what it gets alone, with training's log-probabilities."""

import collections
import dataclasses
import math
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from generator.language import point
from generator.language.roles import (
    BIASES,
    PRESETS,
    SMALL,
    Biases,
    Decoder,
    Engine,
    EngineSettings,
    InputError,
    QueueFull,
    Request,
    SamplingMetadata,
    SamplingParams,
    draft_ngram,
    filter_logits,
    run,
    sample,
    save_hf,
)

CONFIG = dataclasses.replace(SMALL, width=PRESETS["tiny"].width, init_std=0.1)  # GPT-2's heads fill the width


PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 10, 11]]


LONG = [*range(3, 143)]  # longer than the window of a model that has one


MOST = 160


@pytest.fixture(scope="module")
def model():
    return jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))()


@pytest.fixture(scope="module")
def forward(model):
    """Returns a function from tokens to the log-probabilities after each one, in one pass as in training."""
    full = jax.jit(lambda *inputs: jax.nn.log_softmax(model(*inputs)))

    def logprobs(tokens):
        padded, positions = np.zeros((2, 1, MOST), np.int32)
        padded[0, : len(tokens)], positions[0, : len(tokens)] = tokens, range(len(tokens))  # the rest: padding
        return np.asarray(full(padded, positions))[0, : len(tokens)]

    return logprobs


def engine(model, ends=frozenset(), **settings):
    sizes = {"max_sequences": 4, "max_length": MOST, "page_size": 4, "chunk": 16, "kv_cache_tokens": MOST}
    return Engine(CONFIG, model, ends, EngineSettings(**sizes | settings))


def continuations(model, prompts, **settings):
    return [request.tokens for request in engine(model).generate(prompts, SamplingParams(**settings))]


def check_against(forward, request):
    """Compares its log-probabilities with those of one pass over the whole sequence."""
    expected = forward(request.sequence)
    places = np.arange(len(request.prompt) - 1, len(expected) - 1)
    np.testing.assert_allclose(request.logprobs, expected[places, request.tokens], atol=1e-4)
    for place, top in zip(places, request.top_logprobs, strict=True):
        likeliest = np.sort(expected[place])[::-1][: len(top)]
        np.testing.assert_allclose([*top.values()], likeliest, atol=1e-4)
    if request.prompt_logprobs:
        wanted = expected[np.arange(len(request.prompt) - 1), request.prompt[1:]]
        np.testing.assert_allclose(request.prompt_logprobs, wanted, atol=1e-4)


def pool_is_whole(pool, sequences):
    """Checks that each page is free, or counts one reference per sequence that has it in its pages."""
    held = np.zeros(pool.pages, int)
    for pages in sequences:
        np.add.at(held, pages, 1)
    assert held.tolist() == pool.ref_count
    assert sorted(pool.free_pages) == [page for page in range(1, pool.pages) if not held[page]]
    assert pool.found == {digest: page for page, digest in pool.digests.items()}


def pages_are_whole(engine):
    pool_is_whole(engine.pool, [request.pages for request in engine.active])
    point("test_engine.whole", engine)


def test_log_probabilities_are_those_of_training(model, forward):
    wanted = SamplingParams(max_tokens=8, logprobs=5, prompt_logprobs=True)
    requests = engine(model).generate([*PROMPTS, LONG], wanted)
    for request in requests:
        assert len(request.prompt_logprobs) == len(request.prompt) - 1
        check_against(forward, request)
        likeliest = forward(request.prompt + request.tokens).argmax(axis=-1)
        assert request.tokens == likeliest[len(request.prompt) - 1 : -1].tolist()


def test_prompts_are_scored_together(model, forward):
    subject, steps = engine(model), []
    step = subject.device.run
    subject.device.run = lambda *inputs: (steps.append(inputs), step(*inputs))[1]
    requests = subject.generate(
        [LONG[n : n + 4] for n in range(12)], SamplingParams(max_tokens=1, prompt_logprobs=True)
    )
    assert len(steps) == 3  # four sequences of four tokens each: max_sequences, and all of a step's tokens
    for request in requests:
        check_against(forward, request)


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [(0, {}), (1, {}), (2, {"page_size": 16, "chunk": 64}), (3, {"draft_tokens": 3}), (4, {"max_sequences": 12})],
)
def test_whatever_runs_beside_it_a_request_gives_what_it_gives_alone(model, forward, seed, sizes):
    """Requests arrive and are cancelled at random, share prefixes, and need more pages than there are."""
    rng, subject = np.random.default_rng(seed), engine(model, **sizes)
    waiting, cancelled, sent = [], [], []
    for _ in range(12):
        shared = LONG[: rng.integers(0, 60)]
        prompt = [*shared, *rng.integers(0, CONFIG.vocab_size, rng.integers(1, 20)).tolist()]
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
        check_against(forward, request)
        (by_itself,) = alone.generate([request.prompt], request.sampling)
        assert request.tokens == by_itself.tokens[: len(request.tokens)]
        assert request.finish == ("length" if len(request.tokens) == request.sampling.max_tokens else "cancelled")


def test_cached_prefixes_are_not_computed_again(model, forward):
    subject = engine(model)
    (first,) = subject.generate([LONG], SamplingParams(max_tokens=4))
    prompts = [*LONG, *first.tokens, 7], [*LONG[:130], 9], LONG[:128]
    found = subject.generate(list(prompts), SamplingParams(max_tokens=4))
    cached = [request.cached for request in (first, *found)]
    assert cached == [0, 140, 128, 124]  # whole pages of 4, one token at least left
    for request in found:
        check_against(forward, request)
    subject = engine(model)  # others evict pages, those at the end of a sequence first
    subject.generate([LONG, [5, *LONG]], SamplingParams(max_tokens=4))
    (again,) = subject.generate([LONG], SamplingParams(max_tokens=4))
    assert again.cached == 16 and again.tokens == first.tokens  # 4 of 40 pages: 36 were needed


def test_log_probabilities_of_prompts_survive_preemption(model):
    """Requests are preempted more than once, while they decode too."""
    subject, preempted = engine(model, max_sequences=3, chunk=1, kv_cache_tokens=64), collections.Counter()
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
    with pytest.raises(InputError, match=r"--kv-cache-tokens, .*: no room for 500,000,001 pages: lower one of them"):
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
        return device.key.nbytes + device.value.nbytes

    page, others = size(3) - size(2), 3 * size(2) - 2 * size(3)  # of layers with a fixed number of pages
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
    compiled = run._cache_size()
    requests = [
        ([*LONG[:n]], SamplingParams(max_tokens=n, temperature=n % 2, prompt_logprobs=n % 3 == 0)) for n in range(1, 21)
    ]
    added = [subject.add(*request) for request in requests]
    while subject.queued or subject.running:
        subject.step()
    assert run._cache_size() == compiled and len(lines) == len(set(lines))
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


@pytest.mark.parametrize(("wrong", "each"), [(4, 5), (2, 3), (0, 1)])
def test_speculative_decoding_saves_steps_and_does_not_change_the_output(model, monkeypatch, wrong, each):
    (tokens,) = continuations(model, PROMPTS[2:], max_tokens=60)

    def draft_well(request, most):
        """Returns the tokens that follow, with one of them wrong."""
        following = tokens[len(request.tokens) :][:most]
        return [token if i != wrong else (token + 1) % CONFIG.vocab_size for i, token in enumerate(following)]

    monkeypatch.setattr(sys.modules[Engine.__module__], "draft_ngram", draft_well)
    subject, steps = engine(model, draft_tokens=4), 0
    point("test_engine.draft_tokens", subject)
    request = subject.add(PROMPTS[2], SamplingParams(max_tokens=60))
    while subject.running or subject.queued:
        subject.step()
        steps += 1
    assert request.tokens == tokens
    assert steps == 2 + -(-59 // each)  # one prefills, and the last only collects
    place = next(i for i in range(1, 60) if i % each == 1 % each and tokens.index(tokens[i]) == i)
    (ended,) = subject.generate(PROMPTS[2:], SamplingParams(max_tokens=60, stop_token_ids=(tokens[place],)))
    assert ended.tokens == tokens[: place + 1] and ended.finish == "stop"  # drafts after it are dropped


def test_prompt_lookup_drafts_what_followed_before():
    assert draft_ngram(Request([7, 1, 2, 3, 4, 1, 2, 3], SamplingParams()), 6) == [4, 1, 2, 3, 4, 1]
    # the latest match counts
    assert draft_ngram(Request([1, 2, 3, 5], SamplingParams(), tokens=[1, 2, 3, 6, 1, 2, 3]), 1) == [6]
    assert draft_ngram(Request([1, 2, 3, 4, 1, 2], SamplingParams()), 6) == []


def test_sampling_follows_the_seed(model):
    settings = {"max_tokens": 10, "temperature": 1.5}
    sampled = [continuations(model, PROMPTS, seed=seed, **settings) for seed in (0, 0, 1)]
    assert sampled[0] == sampled[1] != sampled[2]
    greedy = [continuations(model, PROMPTS, max_tokens=10, seed=seed) for seed in (0, 1)]
    assert greedy[0] == greedy[1]
    assert continuations(model, PROMPTS, top_k=1, **settings) == greedy[0]


def metadata_of(count, **settings):
    values = dict.fromkeys(SamplingMetadata._fields, 0) | {"top_p": 1, "repetition_penalty": 1} | settings
    types = {"prompt": np.int32, "top_k": np.int32, "seed": np.uint32, "biases": np.int32}
    return SamplingMetadata(
        **{name: np.full(count, value, types.get(name, np.float32)) for name, value in values.items()}
    )


def biases_of(count, *biases):
    columns = np.zeros((3, count, BIASES))
    columns[:, :, : len(biases)] = np.array(biases).reshape(-1, 1, 3).T
    return Biases(*map(np.asarray, columns, (np.int32, np.float32, np.int32)))


def test_sampling_follows_the_probabilities():
    logits, count = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05])), 20_000
    settings = metadata_of(count, temperature=0.5, top_p=0.97)._replace(seed=np.arange(count, dtype=np.uint32))
    sequences = np.zeros((count, 1), np.int32)
    tokens = sample(jnp.tile(logits, (count, 1)), sequences, np.ones(count, np.int32), settings, biases_of(count))
    squares = np.array([0.25, 0.09, 0.0225, 0])  # temperature 1/2 squares them; top-p cuts the fourth
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / count, squares / squares.sum(), atol=0.02)


@pytest.mark.parametrize("top_k", [0, 1, 5, 61])
@pytest.mark.parametrize(("top_p", "min_p"), [(1.0, 0.0), (0.95, 0.02), (0.5, 0.0), (0.01, 0.5)])
def test_filter_equals_transformers(top_k, top_p, min_p):
    torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install '.[test]'")
    transformers = pytest.importorskip("transformers", reason="needs torch and transformers: pip install '.[test]'")
    logits = np.random.default_rng(top_k).normal(0, 3, (16, 61)).astype(np.float32)
    expected = torch.from_numpy(logits)
    if top_k:
        expected = transformers.TopKLogitsWarper(top_k)(None, expected)
    expected = transformers.TopPLogitsWarper(top_p)(None, expected)
    expected = transformers.MinPLogitsWarper(min_p)(None, expected)
    settings = metadata_of(16, top_k=top_k, top_p=top_p, min_p=min_p)
    np.testing.assert_array_equal(filter_logits(logits, settings.top_k, settings.top_p, settings.min_p), expected)


def test_penalties_are_those_of_transformers_and_of_openai():
    torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install '.[test]'")
    transformers = pytest.importorskip("transformers", reason="needs torch and transformers: pip install '.[test]'")
    rng = np.random.default_rng(0)
    logits, sequences = rng.normal(0, 3, (8, 61)).astype(np.float32), rng.integers(0, 61, (8, 20), dtype=np.int32)
    for settings in {"repetition_penalty": 1.7}, {"presence_penalty": 1.5}, {"frequency_penalty": -2.5}:
        expected = logits.copy()
        if "repetition_penalty" in settings:
            processor = transformers.RepetitionPenaltyLogitsProcessor(1.7)
            expected = processor(torch.from_numpy(sequences[:, :15]).long(), torch.from_numpy(logits)).numpy()
        for row in range(8):
            added = collections.Counter(sequences[row, 6:15])
            for token, times in added.items():
                expected[row, token] -= settings.get("presence_penalty", 0) + times * settings.get(
                    "frequency_penalty", 0
                )
        sampled = sample(
            logits, sequences, np.full(8, 15, np.int32), metadata_of(8, prompt=6, **settings), biases_of(8)
        )
        np.testing.assert_array_equal(sampled, expected.argmax(axis=-1))


@pytest.mark.parametrize("length", [8, 9, 20])
def test_biases_are_those_of_transformers(length):
    """Of two sequences, one has no biases; the other may end once it has three tokens after a prompt of six."""
    torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install '.[test]'")
    transformers = pytest.importorskip("transformers", reason="needs torch and transformers: pip install '.[test]'")
    logits, ids = np.random.default_rng(0).normal(0, 3, (2, 61)).astype(np.float32), torch.zeros((1, length)).long()
    wanted, best = torch.from_numpy(logits[:1].copy()), int(logits[0].argmax())
    expected = transformers.SequenceBiasLogitsProcessor({(5,): 3.5, (7,): -2.0})(ids, wanted)
    expected = transformers.MinNewTokensLengthLogitsProcessor(6, 3, [best, 9])(ids, expected)
    until = [(5, 3.5, 99), (7, -2.0, 99), (best, -np.inf, 3), (9, -np.inf, 3)]
    metadata = metadata_of(2, prompt=6)._replace(biases=np.array([len(until), 0], np.int32))
    biased = biases_of(2, *until).add(jnp.array(logits), np.full(2, length, np.int32), metadata)
    np.testing.assert_allclose(biased, np.concatenate([expected.numpy(), logits[1:]]), atol=1e-6)


@pytest.mark.parametrize("prompts", [PROMPTS, [LONG]], ids=["short", "long"])
def test_greedy_equals_transformers(model, tmp_path, prompts):
    torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install '.[test]'")
    transformers = pytest.importorskip("transformers", reason="needs torch and transformers: pip install '.[test]'")
    save_hf(CONFIG, model, tmp_path / "hf")
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", attn_implementation="eager", dtype="float32"
    )
    settings = {"max_new_tokens": 10, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    for prompt, row in zip(prompts, continuations(model, prompts, max_tokens=10), strict=True):
        ids = torch.tensor([prompt])
        assert reference.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0].tolist() == prompt + row


def test_what_can_never_be_served_is_an_error(model):
    context = CONFIG.context_length
    subject = engine(model, max_length=0, kv_cache_tokens=0, queue=1)
    with pytest.raises(InputError, match=f"the prompt has {context - 2} tokens, the context {context}: lower it"):
        subject.add([1] * (context - 2), SamplingParams(max_tokens=3))
    with pytest.raises(InputError, match="--max-length 1: must be at least 2"):
        engine(model, max_length=1)
    with pytest.raises(InputError, match="start it with bos"):
        subject.add([], SamplingParams())
    with pytest.raises(InputError, match=f"token {CONFIG.vocab_size} of another tokenizer"):
        subject.add([CONFIG.vocab_size], SamplingParams(max_tokens=2))
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
        {"top_k": CONFIG.vocab_size + 1},
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
