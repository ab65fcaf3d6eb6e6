"""How far a woven package is from the model of transformers that it stands for: for `gen parity` and the tests.

Imports jax, torch and transformers, which take seconds and may not be there: import it late.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from flax import nnx
from safetensors.numpy import load_file

STEPS = 8  # of decoding
MODULES = ("config", "errors", "model", "parallel", "huggingface", "pages", "engine", "generate", "train")
SHARDS = 2  # over which the mesh splits heads and the vocabulary


class Compared(NamedTuple):
    """How far two sides are apart.

    Attributes:
        what: is compared.
        difference: the largest.
        bound: up to which it counts as rounding.
    """

    what: str
    difference: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.bound  # not where it is no number


def load_package(folder: Path) -> SimpleNamespace:
    """Imports the modules of a package from the folder that holds it, in place of another of its name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]
    sys.path.insert(0, str(folder.parent))
    try:
        return SimpleNamespace(**{name: importlib.import_module(f"{folder.name}.{name}") for name in MODULES})
    finally:
        sys.path.remove(str(folder.parent))


@torch.no_grad()
def vary(reference: Any) -> None:
    """Gives norms, biases and the like of a new model random values too, so that each moves the logits."""
    for name, parameter in reference.named_parameters():
        if parameter.ndim == 1 and "norm" in name.lower():
            parameter.add_(torch.empty_like(parameter).uniform_(-0.4, 0.4))
        elif parameter.ndim == 1 or "sink" in name or "bias" in name:
            parameter.uniform_(-0.4, 0.4)
    for name, buffer in reference.named_buffers():
        if "bias" in name and buffer.is_floating_point():  # a router's correction
            buffer.uniform_(-0.1, 0.1)


def as_torch(tokens: np.ndarray) -> Any:
    return torch.from_numpy(np.asarray(tokens)).long()


def compare_models(
    package: SimpleNamespace, loaded: tuple[Any, Any], reference: Any, scratch: Path, length: int
) -> tuple[list[Compared], dict[str, Exception]]:
    """Returns all of them; and by their names, the errors that ended some of them.

    Args:
        loaded: Config and model, as the package reads them from the folder `checkpoint` in the scratch folder.
    """
    config, model = loaded
    length = min(length, config.context_length)
    tokens = np.setdiff1d(np.arange(config.vocab_size), reference.config.pad_token_id)  # which gets no gradient
    rows = np.random.default_rng(0).choice(tokens, (2, length)).astype(np.int32)
    prompts = [rows[0, : length // 2].tolist(), rows[1, : length - STEPS].tolist()]
    found: list[Compared] = []
    errors: dict[str, Exception] = {}
    try:
        atol = _rounding(reference, as_torch(rows))
    except Exception as error:  # of any class, as the model is anybody's
        return found, {"the model of transformers": error}
    comparisons: dict[str, Callable[[], list[Compared]]] = {
        "logits and gradients": lambda: compare_passes(package, loaded, reference, rows, scratch / "gradients", atol),
        "round trip": lambda: compare_round_trip(package, loaded, scratch / "checkpoint", scratch / "exported"),
        "cached decoding": lambda: compare_decoding(package, model, reference, prompts, atol),
    }
    if len(jax.devices()) >= SHARDS:
        comparisons[f"--mesh-tensor {SHARDS}"] = lambda: compare_mesh(package, loaded, reference, rows)
    for what, run in comparisons.items():
        try:
            found += run()
        except Exception as error:  # likewise, as the package is
            errors[what] = error
    return found, errors


@torch.no_grad()
def _rounding(reference: Any, tokens: Any) -> float:
    """Returns how far logits may be off: some times as far as those of the reference in fp32 are from fp64."""
    logits = reference(tokens, use_cache=False).logits
    exact = reference.double()(tokens, use_cache=False).logits
    reference.float()
    # of every family, logits are off by up to three times as much; where norms have 1e-5 for 1e-6, by 20 or more
    return min(8 * (logits - exact).abs().max().item(), 2e-4 * logits.abs().max().item())


def compare_passes(
    package: SimpleNamespace, loaded: tuple[Any, Any], reference: Any, tokens: np.ndarray, scratch: Path, atol: float
) -> list[Compared]:
    """Logits, their mean cross-entropy, and its gradient by each parameter, relative to the gradient's norm.

    Args:
        loaded: Config and model, as the package reads them from the reference's checkpoint.
        scratch: a new folder, for gradients.
        atol: the bound of logits.
    """
    config, model = loaded

    def mean_loss(model: Any) -> tuple[Any, Any]:
        logits = model(tokens)
        log_probabilities = jax.nn.log_softmax(logits[:, :-1])
        return -jax.numpy.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1).mean(), logits

    (loss, logits), gradients = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))(model)
    expected = reference(as_torch(tokens), use_cache=False).logits
    targets = as_torch(tokens)[:, 1:].flatten()
    expected_loss = torch.nn.functional.cross_entropy(expected[:, :-1].flatten(0, 1), targets)
    expected_loss.backward()
    arrays = {name: np.asarray(x) for name, x in package.parallel.named_arrays(gradients).items()}
    ours, theirs = package.huggingface.hf_views(arrays, config), saved_gradients(reference, scratch)
    return [
        Compared("logits", float(np.abs(logits - expected.detach().numpy()).max()), atol),
        Compared("loss", abs(float(loss) - expected_loss.item()), 1e-4),
        *_compare_gradients(ours, theirs),
    ]


def _compare_gradients(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Compared]:
    """Compares by the names of checkpoints, all layers as one; a side that lacks a gradient is infinitely far off.

    One that is 0 may be lacking: buffers, and layers that make no logits, have none.
    """
    errors: dict[str, float] = {}
    for name in sorted(ours.keys() | theirs.keys()):
        if name in ours and name in theirs:
            error = float(np.linalg.norm(ours[name] - theirs[name])) / max(float(np.linalg.norm(theirs[name])), 1e-6)
        else:
            error = float("inf") if np.any((theirs if name in theirs else ours)[name]) else 0.0
        row = re.sub(r"\.\d+(?=\.)", ".*", f"gradient of {name}")
        errors[row] = float(np.maximum(errors.get(row, 0.0), error))  # which keeps what is no number
    return [Compared(row, error, 1e-3) for row, error in errors.items()]


def saved_gradients(reference: Any, scratch: Path) -> dict[str, np.ndarray]:
    """Returns gradients by the names and in the layout of checkpoints, as `save_pretrained` writes parameters.

    Buffers that are saved, such as a router's correction, have none: zero.
    """
    values = {name: parameter.detach().clone() for name, parameter in reference.named_parameters()}
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        reference.save_pretrained(scratch)
        for name, parameter in reference.named_parameters():
            parameter.copy_(values[name])
    buffers = {name for name, _ in reference.named_buffers()}
    return {name: np.zeros_like(x) if name in buffers else x for name, x in read_tensors(scratch).items()}


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of all safetensors files of a folder."""
    return {name: x for file in sorted(folder.glob("*.safetensors")) for name, x in load_file(file).items()}


def compare_mesh(
    package: SimpleNamespace, loaded: tuple[Any, Any], reference: Any, tokens: np.ndarray
) -> list[Compared]:
    """Compares the loss of training on a mesh with that of transformers, and gradients with those of one device.

    None where the model's sizes do not divide over the mesh.
    """
    config, model = loaded
    mesh = package.parallel.make_mesh(1, 1, tensor=SHARDS, devices=jax.devices()[:SHARDS])
    try:
        laid_out = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
    except package.parallel.InputError:
        return []
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    places = np.broadcast_to(np.arange(inputs.shape[1], dtype=np.int32), inputs.shape)
    batch = {"tokens": inputs, "targets": targets, "positions": places}
    batch |= {"segment_ids": np.ones_like(inputs), "weights": np.ones(inputs.shape, np.float32)}

    def loss(model: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        total, sums = package.train.loss(model, batch, config)
        return total / sums["targets"], sums["cross_entropy"] / sums["targets"]

    gradient = jax.value_and_grad(loss, has_aux=True)
    _, one = jax.jit(gradient)(model, batch)
    with jax.set_mesh(mesh):
        split = jax.device_put(model, jax.tree.map(lambda x: x.sharding, laid_out))
        (_, cross_entropy), two = jax.jit(gradient)(split, batch)
    with torch.no_grad():
        logits = reference(as_torch(inputs), use_cache=False).logits.flatten(0, 1)
        expected = torch.nn.functional.cross_entropy(logits, as_torch(targets).flatten()).item()
    ours, theirs = ({k: np.asarray(x) for k, x in package.parallel.named_arrays(g).items()} for g in (two, one))
    errors = [row.difference for row in _compare_gradients(ours, theirs)]
    name = f"--mesh-tensor {SHARDS}"
    return [
        Compared(f"{name}: loss", abs(float(cross_entropy) - expected), 1e-4),
        Compared(f"{name}: gradients", float(np.max(errors)), 1e-3),
    ]


def compare_round_trip(
    package: SimpleNamespace, loaded: tuple[Any, Any], folder: Path, exported: Path
) -> list[Compared]:
    """Compares an export of what was imported with the folder: names, dtypes and bytes of tensors, settings.

    Args:
        exported: a new folder.
    """
    config, model = loaded
    theirs = read_tensors(folder)
    widest = max(theirs.values(), key=lambda x: x.dtype.itemsize).dtype.name
    package.huggingface.save_hf(config, model, exported, widest)
    ours = read_tensors(exported)
    left_out = {name for name in theirs if name.endswith(tuple(package.huggingface.hf_buffers()))}
    both = [name for name in ours if name in theirs]
    settings = [json.loads((place / "config.json").read_text()) for place in (exported, folder)]
    other = {name for name in settings[0] | settings[1] if settings[0].get(name) != settings[1].get(name)}
    counts = {
        "tensors that one side lacks": len((ours.keys() ^ theirs.keys()) - left_out),
        "tensors of another dtype": sum(ours[name].dtype != theirs[name].dtype for name in both),
        "tensors of other bytes": sum(ours[name].tobytes() != theirs[name].tobytes() for name in both),
        "settings of another value": len(other - {"dtype", "torch_dtype"}),
    }
    return [Compared(f"round trip: {what}", count, 0) for what, count in counts.items()]


def compare_decoding(
    package: SimpleNamespace, model: Any, reference: Any, prompts: list[list[int]], atol: float
) -> list[Compared]:
    """Compares greedy decoding by the engine with `generate`: log-probabilities of each step, and tokens.

    Log-probabilities are compared up to the first token that differs, after which each side reads another text.
    """
    sizes = package.engine.EngineSettings(
        max_sequences=len(prompts), max_length=max(map(len, prompts)) + STEPS, chunk=16
    )
    engine = package.engine.Engine(model.config, model, set(), sizes)
    sampling = package.engine.SamplingParams(
        max_tokens=STEPS, logprobs=min(package.engine.TOP, model.config.vocab_size)
    )
    most, others = 0.0, 0
    reference.generation_config = type(reference.generation_config)()  # by which no token ends a text
    for request in engine.generate(prompts, sampling):
        ids = as_torch(np.array([request.prompt]))
        made = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=STEPS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        same = int((np.array(request.tokens) == made.sequences[0, len(request.prompt) :].numpy()).cumprod().sum())
        others += STEPS - same
        for step in range(min(same + 1, STEPS)):
            theirs = torch.log_softmax(made.logits[step][0].double(), dim=-1).numpy()
            top = request.top_logprobs[step]
            most = float(np.maximum(most, np.abs(theirs[[*top]] - [*top.values()]).max()))
    return [
        Compared("cached decoding: log-probabilities", most, atol),
        Compared("cached decoding: other tokens", others, 0),
    ]
