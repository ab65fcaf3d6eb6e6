"""Compares a woven package with its reference in transformers: for `gen parity` and the tests.

Imports jax and torch, which take seconds and may be missing: import it late.
"""

from __future__ import annotations

import json
import re
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
ZERO = 1e-6  # of the norm of all gradients: what is smaller is rounding
Loaded = tuple[Any, Any]  # a Config and a model
SHARDS = 2  # of the mesh, for heads and the vocabulary


class Comparison(NamedTuple):
    """The difference between a package and its reference.

    Attributes:
        what: names what is compared.
        difference: the largest.
        bound: the largest difference that counts as rounding.
    """

    what: str
    difference: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.bound  # False for NaN


@torch.no_grad()
def randomize(reference: Any) -> None:
    """Sets norms, biases and the like of a new model to random values, so that each changes the logits."""
    for name, parameter in reference.named_parameters():
        if "forget_gate" in name:  # random already; with more, a state forgets all at once, and gradients are rounding
            continue
        if parameter.ndim == 1 and "norm" in name.lower():
            parameter.add_(torch.empty_like(parameter).uniform_(-0.4, 0.4))
        elif parameter.ndim == 1 or "sink" in name or "bias" in name:
            parameter.uniform_(-0.4, 0.4)
    for name, buffer in reference.named_buffers():
        if "bias" in name and buffer.is_floating_point():  # a router's correction
            buffer.uniform_(-0.1, 0.1)
        elif "layer_scalar" in name:
            buffer.uniform_(0.6, 1.4)


def as_torch(tokens: np.ndarray) -> Any:
    return torch.from_numpy(np.asarray(tokens)).long()


def compare_models(
    package: SimpleNamespace,
    loaded: Loaded,
    reference: Any,
    scratch: Path,
    length: int,
    report: Callable[[str], None],
    show: Callable[[list[Comparison]], None],
) -> tuple[list[Comparison], dict[str, Exception]]:
    """Makes all comparisons; returns them, and name -> error of those that failed.

    Args:
        loaded: Config and model, as the package reads them from the folder `checkpoint` in the scratch folder.
        scratch: a folder for further files.
        length: tokens in each of two rows.
        report: prints a line, before each step: it may take minutes.
        show: prints the comparisons of a step.
    """
    config, model = loaded
    length = min(length, config.context_length)
    tokens = np.setdiff1d(np.arange(config.vocab_size), reference.config.pad_token_id)  # which has no gradient
    rows = np.random.default_rng(0).choice(tokens, (2, length)).astype(np.int32)
    prompts = [rows[0, : length // 2].tolist(), rows[1, : length - STEPS].tolist()]
    results: list[Comparison] = []
    errors: dict[str, Exception] = {}
    report("rounding of transformers, against fp64 ...")
    try:
        atol = _measure_logit_bound(reference, as_torch(rows))
    except Exception as error:  # of any class, as the model is anybody's
        return results, {"the model of transformers": error}
    comparisons: dict[str, Callable[[], list[Comparison]]] = {
        "logits and gradients": lambda: compare_passes(package, loaded, reference, rows, scratch / "gradients", atol),
        "round trip": lambda: compare_round_trip(package, loaded, scratch / "checkpoint", scratch / "exported"),
    }
    if hasattr(package, "engine"):
        comparisons["cached decoding"] = lambda: compare_decoding(package, model, reference, prompts, atol)
    if len(jax.devices()) >= SHARDS:
        comparisons[f"--mesh-tensor {SHARDS}"] = lambda: compare_mesh(package, loaded, reference, rows)
    for what, run in comparisons.items():
        report(f"{what} ...")
        try:
            compared = run()
        except Exception as error:  # likewise, as the package is
            errors[what] = error
            continue
        show(compared)
        results += compared
    return results, errors


@torch.no_grad()
def _measure_logit_bound(reference: Any, tokens: Any) -> float:
    """Returns the bound for logits: eight times the difference of the reference in fp32 from fp64."""
    logits = reference(tokens, use_cache=False).logits
    exact = reference.double()(tokens, use_cache=False).logits
    reference.float()
    # measured: up to 3 times for every family, but 20 or more if norms add 1e-5 in place of 1e-6
    return min(8 * (logits - exact).abs().max().item(), 2e-4 * logits.abs().max().item())


def compare_passes(
    package: SimpleNamespace, loaded: Loaded, reference: Any, tokens: np.ndarray, scratch: Path, atol: float
) -> list[Comparison]:
    """Compares logits, their mean cross-entropy, and its gradient by each parameter, relative to the gradient's norm.

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
    buffers = tuple(package.huggingface.hf_buffers())
    ours, theirs = package.huggingface.hf_views(arrays, config), saved_gradients(reference, scratch)
    # a constant that a checkpoint holds beside its parameters
    ours = {name: x for name, x in ours.items() if np.any(theirs.get(name, 0)) or not name.endswith(buffers)}
    return [
        Comparison("logits", float(np.abs(logits - expected.detach().numpy()).max()), atol),
        Comparison("loss", abs(float(loss) - expected_loss.item()), 1e-4),
        *_compare_gradients(ours, theirs),
    ]


def _compare_gradients(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Comparison]:
    """Compares gradients by their names in checkpoints, all layers in one row.

    A gradient that one side lacks is an infinite difference unless it is 0: buffers, and layers that do not reach the
    logits, have none. One that is rounding beside those of all tensors is 0 in mathematics, as a key bias's is without
    rotation: then ours must be so too.
    """
    errors: dict[tuple[str, float], float] = {}
    total = float(np.sqrt(sum(np.linalg.norm(x) ** 2 for x in theirs.values())))
    for name in sorted(ours.keys() | theirs.keys()):
        row, norm = re.sub(r"\.\d+(?=\.)", ".*", f"gradient of {name}"), float(np.linalg.norm(theirs.get(name, 0)))
        key = row, 1e-3
        if name not in ours or name not in theirs:
            error = float("inf") if np.any((theirs if name in theirs else ours)[name]) else 0.0
        elif 0 < norm < ZERO * total:
            key = f"{row}, which is 0", ZERO
            error = float(np.linalg.norm(ours[name])) / total
        else:
            error = float(np.linalg.norm(ours[name] - theirs[name])) / max(norm, 1e-6)
        errors[key] = float(np.maximum(errors.get(key, 0.0), error))  # NaN stays
    return [Comparison(row, error, bound) for (row, bound), error in errors.items()]


def saved_gradients(reference: Any, scratch: Path) -> dict[str, np.ndarray]:
    """Returns gradients by name and in the layout of checkpoints, as `save_pretrained` writes parameters.

    Those of buffers, such as a router's correction, are zero.
    """
    tensors = [*reference.parameters(), *reference.buffers()]
    values = [tensor.detach().clone() for tensor in tensors]
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)
        reference.save_pretrained(scratch)
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
    return read_tensors(scratch)


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of all safetensors files of a folder."""
    return {name: x for file in sorted(folder.glob("*.safetensors")) for name, x in load_file(file).items()}


def compare_mesh(package: SimpleNamespace, loaded: Loaded, reference: Any, tokens: np.ndarray) -> list[Comparison]:
    """Compares the loss of training on a mesh with that of transformers, and gradients with those of one device.

    Returns no comparison if the model's sizes do not divide over the mesh.
    """
    config, model = loaded
    mesh = package.parallel.make_mesh(1, 1, tensor=SHARDS, devices=jax.devices()[:SHARDS])
    try:
        laid_out = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
    except package.parallel.InputError:
        return []
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    positions = np.broadcast_to(np.arange(inputs.shape[1], dtype=np.int32), inputs.shape)
    batch = {"tokens": inputs, "targets": targets, "positions": positions}
    batch |= {"segment_ids": np.ones_like(inputs), "weights": np.ones(inputs.shape, np.float32)}

    def loss(model: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        total, sums = package.step.loss(model, batch, config)
        return total / sums["targets"], sums["cross_entropy"] / sums["targets"]

    gradient = jax.value_and_grad(loss, has_aux=True)
    _, unsharded = jax.jit(gradient)(model, batch)
    with jax.set_mesh(mesh):
        model = jax.device_put(model, jax.tree.map(lambda x: x.sharding, laid_out))
        (_, cross_entropy), sharded = jax.jit(gradient)(model, batch)
    with torch.no_grad():
        logits = reference(as_torch(inputs), use_cache=False).logits.flatten(0, 1)
        expected = torch.nn.functional.cross_entropy(logits, as_torch(targets).flatten()).item()
    named = [package.parallel.named_arrays(gradients) for gradients in (sharded, unsharded)]
    ours, theirs = ({name: np.asarray(x) for name, x in arrays.items()} for arrays in named)
    errors = [row.difference * 1e-3 / row.bound for row in _compare_gradients(ours, theirs)]
    name = f"--mesh-tensor {SHARDS}"
    return [
        Comparison(f"{name}: loss", abs(float(cross_entropy) - expected), 1e-4),
        Comparison(f"{name}: gradients", float(np.max(errors)), 1e-3),
    ]


def compare_round_trip(package: SimpleNamespace, loaded: Loaded, folder: Path, exported: Path) -> list[Comparison]:
    """Compares the export of an imported folder with that folder: names, dtypes and bytes of tensors, and settings.

    Args:
        loaded: Config and model, as the package reads them from the folder.
        exported: a new folder.
    """
    config, model = loaded
    theirs = read_tensors(folder)
    widest = max(theirs.values(), key=lambda x: x.dtype.itemsize).dtype.name
    package.huggingface.save_hf(config, model, exported, widest)
    ours = read_tensors(exported)
    buffers = {name for name in theirs if name.endswith(tuple(package.huggingface.hf_buffers()))}
    common = [name for name in ours if name in theirs]
    settings = [json.loads((path / "config.json").read_text()) for path in (exported, folder)]
    changed = {name for name in settings[0] | settings[1] if settings[0].get(name) != settings[1].get(name)}
    counts = {
        "tensors that one side lacks": len((ours.keys() ^ theirs.keys()) - buffers),
        "tensors of another dtype": sum(ours[name].dtype != theirs[name].dtype for name in common),
        "tensors of other bytes": sum(ours[name].tobytes() != theirs[name].tobytes() for name in common),
        "settings of another value": len(changed - {"dtype", "torch_dtype"}),
    }
    return [Comparison(f"round trip: {what}", count, 0) for what, count in counts.items()]


def compare_decoding(
    package: SimpleNamespace, model: Any, reference: Any, prompts: list[list[int]], atol: float
) -> list[Comparison]:
    """Compares greedy decoding by the engine with `generate`: log-probabilities of each step, and tokens.

    Log-probabilities are compared up to the first token that differs, after which the sides read different texts.
    """
    engine, length = package.engine, max(map(len, prompts)) + STEPS
    sizes = engine.EngineSettings(max_sequences=len(prompts), max_length=length, chunk=16)
    sampling = engine.SamplingParams(max_tokens=STEPS, logprobs=min(package.settings.TOP, model.config.vocab_size))
    difference, other_tokens = 0.0, 0
    reference.generation_config = type(reference.generation_config)()  # without tokens that end a text
    options = dict(do_sample=False, output_logits=True, return_dict_in_generate=True)
    for request in engine.Engine(model.config, model, set(), sizes).generate(prompts, sampling):
        ids = as_torch(np.array([request.prompt]))
        output = reference.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=STEPS, **options)
        same = int((np.array(request.tokens) == output.sequences[0, len(request.prompt) :].numpy()).cumprod().sum())
        other_tokens += STEPS - same
        for step in range(min(same + 1, STEPS)):
            theirs = torch.log_softmax(output.logits[step][0].double(), dim=-1).numpy()
            top = request.top_logprobs[step]
            difference = float(np.maximum(difference, np.abs(theirs[[*top]] - [*top.values()]).max()))
    return [
        Comparison("cached decoding: log-probabilities", difference, atol),
        Comparison("cached decoding: other tokens", other_tokens, 0),
    ]
