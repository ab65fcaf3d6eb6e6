"""Sampling: its probabilities, and settings that mean what they mean in transformers and in OpenAI's API."""

import collections

import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import point
from generator.language.roles import BIASES, Biases, SamplingMetadata, filter_logits, fold_seed, sample


def reference():
    """Imports torch and transformers."""
    names = "torch", "transformers"
    return [pytest.importorskip(name, reason=f"needs {name}: pip install '.[test]'") for name in names]


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


def test_each_choice_of_each_prompt_has_a_seed_of_its_own():
    seeds = [fold_seed(seed, prompt, i) for seed in range(16) for prompt in range(16) for i in range(16)]
    assert len({*seeds}) == len(seeds) and all(0 <= seed < 2**32 for seed in seeds)
    assert seeds[:: 16 * 16] == [*range(16)]  # the first one has that of the request
    assert len({fold_seed(None, 0, 0) for _ in range(100)}) > 90


def test_sampling_follows_the_probabilities():
    places = np.array([3, 300, 301, 700])  # in three blocks of the vocabulary
    logits = jnp.full(768, -jnp.inf).at[places].set(jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05])))
    count = 20_000
    settings = metadata_of(count, temperature=0.5, top_p=0.97)._replace(seed=np.arange(count, dtype=np.uint32))
    sequences = np.zeros((count, 1), np.int32)
    with point("test_sampling.drawn", logits, count, settings, sequences):
        tokens = sample(jnp.tile(logits, (count, 1)), sequences, np.ones(count, np.int32), settings, biases_of(count))
    squares = np.array([0.25, 0.09, 0.0225, 0])  # temperature 1/2 squares them; top-p cuts the fourth
    np.testing.assert_allclose(np.bincount(tokens, minlength=768)[places] / count, squares / squares.sum(), atol=0.02)


@pytest.mark.parametrize("top_k", [0, 1, 5, 61])
@pytest.mark.parametrize(("top_p", "min_p"), [(1.0, 0.0), (0.95, 0.02), (0.5, 0.0), (0.01, 0.5)])
def test_filter_equals_transformers(top_k, top_p, min_p):
    torch, transformers = reference()
    logits = np.random.default_rng(top_k).normal(0, 3, (16, 61)).astype(np.float32)
    expected = torch.from_numpy(logits)
    if top_k:
        expected = transformers.TopKLogitsWarper(top_k)(None, expected)
    expected = transformers.TopPLogitsWarper(top_p)(None, expected)
    expected = transformers.MinPLogitsWarper(min_p)(None, expected)
    settings = metadata_of(16, top_k=top_k, top_p=top_p, min_p=min_p)
    np.testing.assert_array_equal(filter_logits(logits, settings.top_k, settings.top_p, settings.min_p), expected)


def test_penalties_are_those_of_transformers_and_of_openai():
    torch, transformers = reference()
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (8, 61)).astype(np.float32)
    sequences = rng.integers(0, 61, (8, 20), dtype=np.int32)
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
        with point("test_sampling.penalized", logits, sequences, settings):
            sampled = sample(
                logits, sequences, np.full(8, 15, np.int32), metadata_of(8, prompt=6, **settings), biases_of(8)
            )
        np.testing.assert_array_equal(sampled, expected.argmax(axis=-1))


@pytest.mark.parametrize("length", [8, 9, 20])
def test_biases_are_those_of_transformers(length):
    """Of two sequences, one has no biases; the other may end once it has three tokens after a prompt of six."""
    torch, transformers = reference()
    logits = np.random.default_rng(0).normal(0, 3, (2, 61)).astype(np.float32)
    ids = torch.zeros((1, length)).long()
    wanted = torch.from_numpy(logits[:1].copy())
    best = int(logits[0].argmax())
    expected = transformers.SequenceBiasLogitsProcessor({(5,): 3.5, (7,): -2.0})(ids, wanted)
    expected = transformers.MinNewTokensLengthLogitsProcessor(6, 3, [best, 9])(ids, expected)
    until = [(5, 3.5, 99), (7, -2.0, 99), (best, -np.inf, 3), (9, -np.inf, 3)]
    metadata = metadata_of(2, prompt=6)._replace(biases=np.array([len(until), 0], np.int32))
    biased = biases_of(2, *until).add(jnp.array(logits), np.full(2, length, np.int32), metadata)
    np.testing.assert_allclose(biased, np.concatenate([expected.numpy(), logits[1:]]), atol=1e-6)
