"""What makes a woven package equal to its reference in transformers: five comparisons, in fp32."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from generator.checkpoint import comparisons
from generator.checkpoint.comparisons import as_torch, saved_gradients
from generator.checkpoint.loading import load_package

__all__ = ["as_torch", "load_package", "saved_gradients"]

DOCUMENTS = 3  # in a packed row, or rows alone


def forward(package) -> Any:
    """A model's logits of tokens, compiled once for all tests of a package."""
    return vars(package).setdefault("forward", jax.jit(lambda model, *inputs, **named: model(*inputs, **named)))


def make_reference(reference_class: Any, config: Any) -> torch.nn.Module:
    """A random model in eval mode; norms, biases and the like are random too, so that each moves the logits."""
    torch.manual_seed(0)
    reference = reference_class(config).eval().float()
    comparisons.randomize(reference)
    return reference


def check_logits_and_gradients(package, reference, folder: Path, tokens: np.ndarray, atol: float) -> None:
    """Logits within `atol`, and the gradient of the mean cross-entropy of each tensor within 1e-3 of its norm."""
    loaded = package.huggingface.load_hf(folder)
    found = comparisons.compare_passes(package, loaded, reference, tokens, folder / "gradients", atol)
    assert reference(as_torch(tokens), use_cache=False).logits.abs().max() > 0.5  # else the tolerance would say nothing
    assert [row for row in found if not row.holds] == []


def check_round_trip(
    package, reference, folder: Path, follows: dict[str, Any], respelled: Collection[str] = ()
) -> None:
    """Import, export and reload give every tensor back to the bit, and config.json as it was.

    Without the one that was imported, an export writes every setting but of tokens, and what follows from them.
    """
    config, model = package.huggingface.load_hf(folder)
    found = comparisons.compare_round_trip(package, (config, model), folder, folder / "ours")
    assert [row for row in found if not row.holds] == []
    assert json.loads((folder / "ours/config.json").read_text()) == json.loads((folder / "config.json").read_text())
    again = type(reference).from_pretrained(folder / "ours")
    ours, theirs = again.config.to_dict(), reference.config.to_dict()
    apart = dict.fromkeys((*respelled, "_name_or_path"))
    assert ours | apart == theirs | apart
    package.huggingface.save_hf(dataclasses.replace(config, tokenizer="bytes"), model, folder / "anew")
    ours = type(reference.config).from_pretrained(folder / "anew").to_dict()
    if follows:
        theirs["rope_parameters"] |= follows
    settings = {name for name in theirs if not name.endswith("_token_id")}
    settings -= {*respelled, "_name_or_path", "dtype", "transformers_version"}
    assert {name: (ours[name], theirs[name]) for name in sorted(settings) if ours[name] != theirs[name]} == {}


def check_decoding(package, model, tokens: np.ndarray, **settings: int) -> None:
    """The engine's log-probabilities, over prompts longer than its pages and parts, are those of full passes."""
    engine = package.engine
    sampling = engine.SamplingParams(max_tokens=6, logprobs=package.settings.TOP, prompt_logprobs=True)
    subject = engine.Engine(model.config, model, set(), engine.EngineSettings(max_length=24, **settings))
    requests = subject.generate([tokens[0, :7].tolist(), tokens[1, :11].tolist()], sampling)
    for compiled in (
        package.device.run,
        package.device.write,
    ):  # of which no other test has a use: they would stay in memory
        compiled.clear_cache()
    rows = np.zeros((DOCUMENTS, 17), np.int32)
    for row, request in zip(rows[:2], requests, strict=True):
        row[: len(request.sequence)] = request.sequence
    full = np.asarray(jax.nn.log_softmax(forward(package)(model, rows)))
    for request, expected in zip(requests, full[:2], strict=True):
        found = [*request.prompt_logprobs, *request.logprobs]
        places = np.arange(len(found))
        np.testing.assert_allclose(found, expected[places, request.sequence[1:]], atol=1e-4, rtol=0)
        tops = [*request.prompt_top_logprobs, *request.top_logprobs]
        for top, at_place in zip(tops, expected[places], strict=True):
            np.testing.assert_allclose([*top.values()], at_place[[*top]], atol=1e-4, rtol=0)


def check_packing(package, folder: Path, tokens: np.ndarray) -> None:
    """Documents packed into one row, with padding, give what each gives alone."""
    _, model = package.huggingface.load_hf(folder)
    length = tokens.shape[1] - 15
    alone = np.resize(tokens, (DOCUMENTS, length))
    lengths = [length] * DOCUMENTS + [3]  # and padding
    row = np.concatenate([alone.ravel(), np.zeros(3, np.int32)])[None]
    segment_ids = np.repeat([1, 2, 3, 0], lengths)[None].astype(np.int32)
    positions = np.concatenate([np.arange(n) for n in lengths])[None].astype(np.int32)
    named = {"positions": positions, "segment_ids": segment_ids}
    taken = named.keys() & inspect.signature(package.model.Decoder.__call__).parameters  # some models have no positions
    packed = forward(package)(model, row, **{name: named[name] for name in taken})[:, :-3]
    packed = packed.reshape(DOCUMENTS, length, -1)
    np.testing.assert_allclose(packed, forward(package)(model, alone), atol=1e-4, rtol=0)
