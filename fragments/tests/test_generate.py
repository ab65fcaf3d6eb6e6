"""Cached decoding against the full forward pass, and against transformers."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from generator.language import layers
from generator.language.roles import (
    PRESETS,
    SMALL,
    ByteTokenizer,
    Decoder,
    InputError,
    Sampling,
    decode,
    empty_cache,
    filter_logits,
    generate,
    sample,
    save_hf,
    stream_text,
)

CONFIG = dataclasses.replace(SMALL, width=PRESETS["tiny"].width, init_std=0.1)  # for GPT-2, the heads make up the width


PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 10, 11]]


LONG = [*range(3, 143)]  # longer than the window of a model that has one


SHORT = 32  # tokens of a text and what is added to it: after the other prompts, and after the long one


MOST = 160


NO_EOS = -1


@pytest.fixture(scope="module")
def model():
    return jax.jit(lambda: Decoder(CONFIG, nnx.Rngs(0)))()


@pytest.fixture(scope="module")
def forward(model):
    """Tokens -> the logits after each of them, by one pass without a cache over a sequence of one of two lengths."""
    full = jax.jit(lambda tokens: model(tokens))

    def logits(tokens):
        padded = np.zeros((1, SHORT if len(tokens) <= SHORT else MOST), np.int32)
        padded[0, : len(tokens)] = tokens
        return np.asarray(full(padded))[0, : len(tokens)]

    return logits


def continuations(model, prompts, eos=NO_EOS, **settings):
    return np.stack(list(generate(model, prompts, Sampling(**settings), eos)), axis=1).tolist()


def new_cache(config, batch: int):
    return layers.stacked(lambda group: empty_cache(config, group.count, batch, MOST))


@pytest.mark.parametrize("prompts", [PROMPTS, [LONG]], ids=["short", "long"])
def test_cached_logits_equal_the_full_forward_pass(model, forward, prompts):
    """A ragged batch: prompts padded to the longest, then each token at its own position."""
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    rows, longest = len(prompts), max(lengths)
    tokens = np.array([prompt + [60] * (longest - len(prompt)) for prompt in prompts], np.int32)
    positions, last = np.broadcast_to(np.arange(longest, dtype=np.int32), tokens.shape), lengths - 1
    cache, texts = new_cache(CONFIG, rows), [list(prompt) for prompt in prompts]
    rng = np.random.default_rng(0)
    for step in range(8):
        logits, cache = decode(model, cache, tokens, positions, last)
        for row, text in zip(logits, texts, strict=True):
            np.testing.assert_allclose(row, forward(text)[-1], atol=1e-4)
        new = rng.integers(0, CONFIG.vocab_size, rows, dtype=np.int32)
        texts = [[*text, token] for text, token in zip(texts, new, strict=True)]
        tokens, positions, last = new[:, None], lengths[:, None] + step, np.zeros_like(last)


def test_a_text_may_come_in_pieces(model, forward):
    cache, full = new_cache(CONFIG, 1), forward(LONG[:30])
    for start, stop in [(0, 4), (4, 5), (5, 20), (20, 30)]:
        tokens, positions = (np.array([x[start:stop]], np.int32) for x in (LONG, range(MOST)))
        logits, cache = decode(model, cache, tokens, positions, np.array([stop - start - 1]))
        np.testing.assert_allclose(logits[0], full[stop - 1], atol=1e-4)


def test_greedy_takes_the_likeliest_token(model, forward):
    rows = continuations(model, PROMPTS, max_tokens=10)
    for prompt, row in zip(PROMPTS, rows, strict=True):
        likeliest = forward(prompt + row).argmax(axis=-1)  # [T]: of the token after each
        assert row == likeliest[len(prompt) - 1 : -1].tolist()
    assert len({tuple(row) for row in rows}) == 3


def test_a_prompt_ends_at_eos_and_the_others_go_on(model):
    free = continuations(model, PROMPTS, max_tokens=10)
    eos = free[0][4]
    ended = continuations(model, PROMPTS, eos, max_tokens=10)
    steps = [row.index(eos) + 1 if eos in row else 10 for row in free]
    assert len(set(steps)) > 1
    for row, expected, length in zip(ended, free, steps, strict=True):
        assert row[:length] == expected[:length]
        assert set(row[length:]) <= {eos}
    assert len(ended[0]) == max(steps)
    assert len(continuations(model, PROMPTS[:1], eos, max_tokens=10)[0]) == steps[0]


def test_draws_follow_the_seed(model):
    settings = {"max_tokens": 10, "temperature": 1.5}
    draws = [continuations(model, PROMPTS, seed=seed, **settings) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    greedy = [continuations(model, PROMPTS, max_tokens=10, seed=seed) for seed in (0, 1)]
    assert greedy[0] == greedy[1]
    assert continuations(model, PROMPTS, top_k=1, **settings) == greedy[0]


def test_draws_follow_the_probabilities():
    logits = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
    sampling = Sampling(temperature=0.5, top_p=0.97)
    tokens = sample(jnp.tile(logits, (20_000, 1)), jax.random.key(0), sampling)
    squares = np.array([0.25, 0.09, 0.0225, 0])  # temperature 1/2 squares them; the fourth is beyond top-p
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / 20_000, squares / squares.sum(), atol=0.02)


@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 61])
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5, 0.01])
def test_filter_equals_transformers(top_k, top_p):
    torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install '.[test]'")
    transformers = pytest.importorskip("transformers", reason="needs torch and transformers: pip install '.[test]'")
    logits = np.random.default_rng(top_k).normal(0, 3, (16, 61)).astype(np.float32)
    expected = torch.from_numpy(logits)
    if top_k:
        expected = transformers.TopKLogitsWarper(top_k)(None, expected)
    expected = transformers.TopPLogitsWarper(top_p)(None, expected)
    np.testing.assert_array_equal(filter_logits(jnp.asarray(logits), top_k, top_p), expected)


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


def test_more_than_the_context_is_an_error(model):
    context = CONFIG.context_length
    prompt = [1] * (context - 2)
    with pytest.raises(InputError, match=f"the prompt has {context - 2} tokens, the context {context}: lower it"):
        continuations(model, [prompt], max_tokens=3)
    next(generate(model, [prompt], Sampling(max_tokens=2), NO_EOS))  # just fits
    with pytest.raises(InputError, match="begin it with bos"):
        continuations(model, [[1], []], max_tokens=2)
    with pytest.raises(InputError, match=f"token {CONFIG.vocab_size} of another tokenizer"):
        continuations(model, [[1], [CONFIG.vocab_size]], max_tokens=2)


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
        {"seed": -1},
        {"seed": 10**30},
    ],
)
def test_a_setting_without_meaning_is_an_error(model, setting):
    with pytest.raises(InputError, match=f"--{next(iter(setting)).replace('_', '-')}"):
        continuations(model, PROMPTS, **{"max_tokens": 10} | setting)


@pytest.mark.parametrize("text", ["plain", "größer", "日本語", "👩‍🚀 up", ""])
def test_streamed_text_is_whole_characters(text):
    tokenizer = ByteTokenizer()
    pieces = list(stream_text(tokenizer, tokenizer.encode("é:"), tokenizer.encode(text)))
    assert "".join(pieces) == "é:" + text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) == max(len(text), 1)


def test_streamed_text_keeps_bytes_that_are_no_text():
    tokens = [0xE2, 0x82, ord("a"), 0xFF]
    assert "".join(stream_text(ByteTokenizer(), [], tokens)) == bytes(tokens).decode(errors="replace")
