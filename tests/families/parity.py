"""What makes a woven package equal to its reference in transformers: five comparisons, in fp32."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import torch

MODULES = ("config", "errors", "model", "parallel", "huggingface", "generate", "train")


def load_package(folder: Path) -> SimpleNamespace:
    """The modules of a package, imported from the folder that holds it; those of another of its name are forgotten."""
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]
    sys.path.insert(0, str(folder.parent))
    try:
        return SimpleNamespace(**{name: importlib.import_module(f"{folder.name}.{name}") for name in MODULES})
    finally:
        sys.path.remove(str(folder.parent))


def make_reference(reference_class: Any, config: Any) -> torch.nn.Module:
    """A random model in eval mode; norms, biases and the like are random too, so that each moves the logits."""
    torch.manual_seed(0)
    reference = reference_class(config).eval().float()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if parameter.ndim == 1 and "norm" in name.lower():
                parameter.add_(torch.empty_like(parameter).uniform_(-0.4, 0.4))
            elif parameter.ndim == 1 or "sink" in name or "bias" in name:
                parameter.uniform_(-0.4, 0.4)
        for name, buffer in reference.named_buffers():
            if "bias" in name and buffer.is_floating_point():  # a router's correction
                buffer.uniform_(-0.1, 0.1)
    return reference


def as_torch(tokens: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(tokens)).long()


def check_logits_and_gradients(package, reference, folder: Path, tokens: np.ndarray, atol: float) -> None:
    """Logits within `atol`, and the gradient of the mean cross-entropy of each tensor within 1e-3 of its norm."""
    config, model = package.huggingface.load_hf(folder)

    def mean_loss(model):
        logits = model(tokens)
        log_probabilities = jax.nn.log_softmax(logits[:, :-1])
        return -jax.numpy.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1).mean(), logits

    gradients, logits = jax.jit(jax.grad(mean_loss, has_aux=True))(model)
    expected = reference(as_torch(tokens), use_cache=False).logits
    np.testing.assert_allclose(logits, expected.detach().numpy(), atol=atol, rtol=0)
    assert np.abs(logits).max() > 0.5  # else the tolerance would say nothing
    torch.nn.functional.cross_entropy(expected[:, :-1].flatten(0, 1), as_torch(tokens)[:, 1:].flatten()).backward()
    arrays = {name: np.asarray(x) for name, x in package.parallel.named_arrays(gradients).items()}
    ours = {name: np.asarray(view) for name, view in package.huggingface.hf_views(arrays, config).items()}
    saved = saved_gradients(reference, folder)
    assert ours.keys() == saved.keys()
    for name, theirs in saved.items():
        error = np.linalg.norm(ours[name] - theirs) / max(np.linalg.norm(theirs), 1e-6)
        assert error < 1e-3, f"{name}: relative error {error}"


def saved_gradients(reference: torch.nn.Module, folder: Path) -> dict[str, np.ndarray]:
    """The gradients by the names and in the layout that checkpoints have, as `save_pretrained` writes parameters.

    Buffers that are saved, such as a router's correction, have none: zero.
    """
    from safetensors.numpy import load_file

    values = {name: parameter.detach().clone() for name, parameter in reference.named_parameters()}
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        reference.save_pretrained(folder / "gradients")
        for name, parameter in reference.named_parameters():
            parameter.copy_(values[name])
    trained = load_file(folder / "gradients/model.safetensors")
    buffers = {name for name, _ in reference.named_buffers()}
    return {name: np.zeros_like(value) if name in buffers else value for name, value in trained.items()}


def check_round_trip(package, reference, folder: Path, follows: dict[str, Any]) -> None:
    """Import, export and reload give every tensor back to the bit, and config.json as it was.

    Without the one that was imported, an export writes every setting but of tokens, and what follows from them.
    """
    config, model = package.huggingface.load_hf(folder)
    package.huggingface.save_hf(config, model, folder / "ours")
    assert json.loads((folder / "ours/config.json").read_text()) == json.loads((folder / "config.json").read_text())
    again = type(reference).from_pretrained(folder / "ours")
    ours, theirs = again.state_dict(), reference.state_dict()
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert torch.equal(ours[name], theirs[name]), name
    ours, theirs = again.config.to_dict(), reference.config.to_dict()
    assert ours | {"_name_or_path": ""} == theirs | {"_name_or_path": ""}
    package.huggingface.save_hf(dataclasses.replace(config, tokenizer="bytes"), model, folder / "anew")
    ours = type(reference.config).from_pretrained(folder / "anew").to_dict()
    if follows:
        theirs["rope_parameters"] |= follows
    settings = {name for name in theirs if not name.endswith("_token_id")}
    settings -= {"_name_or_path", "dtype", "transformers_version"}
    assert {name: ours[name] for name in settings} == {name: theirs[name] for name in settings}


def check_cached_decoding(package, model, tokens: np.ndarray, monkeypatch) -> None:
    """The logits of each step of greedy decoding are those of a full pass over what was read so far."""
    seen: list[np.ndarray] = []
    sample = package.generate.sample
    monkeypatch.setattr(package.generate, "sample", lambda logits, *rest: seen.append(logits) or sample(logits, *rest))
    prompts, count = [list(tokens[0, :7]), list(tokens[1, :11])], 6
    settings = package.generate.Sampling(max_tokens=count)
    added = np.stack(list(package.generate.generate(model, prompts, settings, eos=-1)), axis=1)  # [B, count]
    longest = max(map(len, prompts)) + count
    rows = [[*prompt, *added[row]] for row, prompt in enumerate(prompts)]
    full = jax.jit(model)(np.array([[*row, *[0] * (longest - len(row))] for row in rows], np.int32))
    for row, prompt in enumerate(prompts):
        for step in range(count):
            np.testing.assert_allclose(seen[step][row], full[row, len(prompt) - 1 + step], atol=1e-4, rtol=0)


def check_packing(package, folder: Path, tokens: np.ndarray) -> None:
    """Documents packed into one row, with padding, give what each gives alone."""
    _, model = package.huggingface.load_hf(folder)
    lengths = [tokens.shape[1] - 15, 6, 6]  # and three of padding
    row, padding = tokens[:1], tokens.shape[1] - sum(lengths)
    segment_ids = np.repeat([1, 2, 3, 0], [*lengths, padding])[None].astype(np.int32)
    positions = np.concatenate([np.arange(n) for n in [*lengths, padding]])[None].astype(np.int32)
    logits = jax.jit(lambda *inputs: model(*inputs))  # one function, which is compiled once for each length
    packed, start = logits(row, positions, segment_ids), 0
    for length in lengths:
        alone = logits(row[:, start : start + length])
        np.testing.assert_allclose(packed[:, start : start + length], alone, atol=1e-4, rtol=0)
        start += length
