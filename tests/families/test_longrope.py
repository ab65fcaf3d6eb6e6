"""Longrope: each text has the factors of its own length, whatever runs beside it and however it is cut."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers

from families import parity
from families.cases import FAMILIES
from families.weaving import woven

BOUND = 24  # tokens of the original context
DOCUMENTS = [[BOUND], [BOUND + 1], [5, BOUND + 7], [BOUND + 1, 5, 6], [3, BOUND, 9]]  # lengths, in rows of a batch
PROMPTS = [1, BOUND - 9, BOUND - 1, BOUND, BOUND + 1, BOUND + 9, 5]  # lengths


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A package, its model, and the reference; factors and weights are such that the wrong ones are off by nats."""
    folder = tmp_path_factory.mktemp("longrope")
    settings = FAMILIES["phi4_mini"].settings | dict(original_max_position_embeddings=BOUND)
    config = transformers.Phi3Config(**settings, attn_implementation="eager")
    reference = parity.make_reference(transformers.Phi3ForCausalLM, config)
    reference.save_pretrained(folder / "hf")
    package = woven("phi4_mini", "cpu", folder)
    return package, *package.huggingface.load_hf(folder / "hf"), reference


@torch.no_grad()
def scores(reference, text: list[int]) -> np.ndarray:
    """Log-likelihoods of the tokens of a text but the first, by a pass over all of it alone."""
    logprobs = torch.log_softmax(reference(torch.tensor([text]), use_cache=False).logits[0, :-1], dim=-1)
    return logprobs[range(len(text) - 1), text[1:]].numpy()


def test_training_sums_what_each_document_gives_alone(loaded):
    """Packed, beside rows of other lengths, and whether the batch is cut into microbatches or not."""
    package, config, model, reference = loaded
    rng, length = np.random.default_rng(0), 40
    names = "tokens", "targets", "positions", "segment_ids", "weights"
    batch = {name: np.zeros((len(DOCUMENTS), length), np.float32 if name == "weights" else np.int32) for name in names}
    expected = 0.0
    for row, lengths in enumerate(DOCUMENTS):
        start = 0
        for number, size in enumerate(lengths, start=1):
            text, places = rng.integers(0, config.vocab_size, size).tolist(), (row, slice(start, start + size))
            batch["tokens"][places], batch["positions"][places] = text, range(size)
            batch["targets"][places], batch["segment_ids"][places] = [*text[1:], 0], number
            batch["weights"][places] = [1] * (size - 1) + [0]
            expected -= scores(reference, text).sum()
            start += size
    config = dataclasses.replace(config, batch_size=len(DOCUMENTS))
    for parts in 1, len(DOCUMENTS):
        divided = dataclasses.replace(config, accumulation=parts)
        sums = jax.jit(package.step.eval_step, static_argnums=2)(model, batch, divided)
        assert abs(float(sums["cross_entropy"]) - expected) < 1e-2, parts
        assert float(sums["targets"]) == sum(size - 1 for lengths in DOCUMENTS for size in lengths)


@pytest.mark.slow
@pytest.mark.parametrize("draft_tokens", [0, 2])
def test_serving_gives_what_each_text_gives_alone(loaded, draft_tokens):
    """With continuous batching, chunked prefill, shared prefixes, and sequences that outgrow the original context."""
    package, config, model, reference = loaded
    engine, text = package.engine, np.random.default_rng(1).integers(0, config.vocab_size, 40).tolist()
    settings = engine.EngineSettings(max_sequences=2, max_length=56, page_size=4, chunk=4, draft_tokens=draft_tokens)
    subject = engine.Engine(config, model, set(), settings)
    prompts = [text[:length] for length in PROMPTS] + [[7, 8] * 9]  # the last one repeats itself, so drafts are right
    requests = subject.generate(prompts, engine.SamplingParams(max_tokens=12))
    (again,) = subject.generate([text[: BOUND + 9]], engine.SamplingParams(max_tokens=1, prompt_logprobs=True))
    np.testing.assert_allclose(again.prompt_logprobs, scores(reference, again.prompt), atol=1e-4)
    for request in requests:
        for place in range(len(request.tokens)):  # each is drawn by the factors of the text before it
            before = [*request.prompt, *request.tokens[:place]]
            with torch.no_grad():
                logits = reference(torch.tensor([before]), use_cache=False).logits[0, -1]
            assert int(logits.argmax()) == request.tokens[place]
            expected = torch.log_softmax(logits, dim=-1)[request.tokens[place]]
            assert abs(request.logprobs[place] - float(expected)) < 1e-4


def test_a_text_that_outgrows_the_original_context_goes_on_as_in_transformers(loaded):
    package, config, model, reference = loaded
    prompt = np.random.default_rng(2).integers(0, config.vocab_size, BOUND - 5).tolist()
    ids = torch.tensor([prompt])
    expected = reference.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, use_cache=True, pad_token_id=0
    )
    settings = package.engine.EngineSettings(max_sequences=1, max_length=40, page_size=4, chunk=8)
    subject = package.engine.Engine(config, model, set(), settings)
    longer = [*prompt, *range(6)]
    sampling = [package.engine.SamplingParams(max_tokens=most) for most in (1, 1, 12)]
    found = [subject.generate([text], x)[0] for text, x in zip((longer[:BOUND], longer, prompt), sampling, strict=True)]
    assert [request.cached for request in found[:2]] == [0, 0]  # the second one's keys are of other factors
    assert found[-1].sequence == expected[0].tolist()
