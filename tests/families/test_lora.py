"""LoRA in packages of several families: it starts as the base, moves nothing but adapters, and merges into weights."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import sys

import jax
import numpy as np
import pytest
import transformers
from flax import nnx
from selected import mostly_slow

from families import parity
from families.cases import FAMILIES
from families.weaving import batch_of, woven

# plain; queries, keys and values of one projection, with biases; periods of layers; experts; a cache of latents
NAMES = ["llama2", "gpt2", "gemma2", "qwen3_moe", "deepseek_v3"]


@pytest.fixture(scope="module", params=mostly_slow(NAMES, "gpt2"))
def imported(request, tmp_path_factory):
    """A package with LoRA, a random checkpoint of transformers, and its class."""
    family, folder = FAMILIES[request.param], tmp_path_factory.mktemp(f"lora_{request.param}")
    reference_class = getattr(transformers, family.model)
    config = getattr(transformers, family.config)(
        **family.settings | dict(vocab_size=258), attn_implementation="eager", dtype="float32"
    )
    parity.make_reference(reference_class, config).save_pretrained(folder / "theirs")
    return woven(request.param, "cpu", folder, parts=("all", "lora")), folder, reference_class


def tokens_of(config) -> np.ndarray:
    return np.random.default_rng(0).integers(0, config.vocab_size, (4, 17), dtype=np.int32)


def train(package, config, model, steps: int):
    """The state after some steps on one batch, and the losses."""
    config = dataclasses.replace(config, batch_size=4, accumulation=2, steps=steps, warmup_ratio=0.0)
    config = dataclasses.replace(config, learning_rate=3e-2, sequence_length=16)
    state, step, losses = (
        package.step.new_state(config, model),
        jax.jit(functools.partial(package.step.train_step, config=config)),
        [],
    )
    for _ in range(steps):
        state, metrics = step(state, batch_of(tokens_of(config)))
        losses.append(float(metrics["train/loss"]))
    return state, losses


def test_adapters_alone_learn_and_the_export_has_them_merged(imported):
    package, folder, reference_class = imported
    config, model = package.huggingface.load_hf(folder / "theirs")
    tokens = tokens_of(config)[:, :-1]
    reference = reference_class.from_pretrained(folder / "theirs", attn_implementation="eager")
    expected = reference(parity.as_torch(tokens)).logits.detach().numpy()
    np.testing.assert_allclose(model(tokens), expected, atol=1e-4, rtol=0)  # what they add is zero at first

    before = {name: np.array(x) for name, x in package.parallel.named_arrays(model).items() if x.size}
    state, losses = train(package, config, model, steps=8)
    assert losses[-1] < 0.97 * losses[0], losses
    after = package.parallel.named_arrays(state.model)
    unchanged = {name for name in before if np.array_equal(before[name], after[name])}
    assert unchanged == {name for name in before if ".adapter." not in name}
    moments = [name for name in package.parallel.named_arrays(state.opt_state) if not name.endswith("count")]
    assert moments and all(".adapter." in name for name in moments)

    package.huggingface.save_hf(config, state.model, folder / "ours")
    merged = reference_class.from_pretrained(folder / "ours", attn_implementation="eager")
    found = merged(parity.as_torch(tokens)).logits.detach().numpy()
    assert np.abs(found - expected).max() > 0.1
    np.testing.assert_allclose(state.model(tokens), found, atol=1e-4, rtol=0)
    parity.check_decoding(package, state.model, tokens)


def test_targets_are_names_of_projections(imported):
    package, _, _ = imported
    config = dataclasses.replace(package.config.PRESETS["tiny"], lora_rank=3, lora_targets="out,up")
    model = jax.eval_shape(lambda: package.model.Decoder(config, nnx.Rngs(0)))
    arrays = package.parallel.named_arrays(model)
    adapted = {name.split(".adapter.")[0].rpartition(".")[2] for name in arrays if ".adapter." in name}
    assert adapted == {"out", "up"}
    assert {x.shape[-1] for name, x in arrays.items() if name.endswith("adapter.down")} == {3}
    for settings, found in (
        (dict(lora_targets="out,side"), "no side among all, "),
        (dict(lora_rank=0), "must be an integer from 1"),
    ):
        with pytest.raises(package.errors.InputError, match=found):
            package.trainer.train(dataclasses.replace(config, **settings))


def test_a_run_that_trained_all_parameters_is_refused(imported, tmp_path):
    package, folder, _ = imported
    checkpoints = importlib.import_module(f"{package.model.__name__.split('.')[0]}.checkpoints")
    config, model = package.huggingface.load_hf(folder / "theirs")
    for _, linear in package.model.projections(model):
        linear.adapter = None
    run = checkpoints.Checkpoints(str(tmp_path), config).open()
    run.save(3, {"model": model})
    run.close()
    with pytest.raises(package.errors.InputError, match="3: trained without adapters: export it with the package"):
        checkpoints.load_checkpoint(str(tmp_path), None)


def test_what_an_adapter_adds_is_scaled_by_its_rank(imported):
    """alpha / rank times the product of its matrices: Hu et al. 2021, arXiv 2106.09685, section 4.1."""
    package, _, _ = imported
    sizes = dict(lora_rank=4, lora_alpha=6, lora_targets="up")
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes)
    model = package.model.Decoder(config, nnx.Rngs(0))
    adapters = [m.adapter for _, m in nnx.iter_modules(model) if getattr(m, "adapter", None) is not None]
    assert adapters
    for adapter in adapters:
        adapter.up.set_value(jax.random.normal(jax.random.key(0), adapter.up.shape))
        rule = "...dr,...rf->...df" if adapter.up.shape[-2] == 4 else "...edr,...ref->...edf"  # of each expert
        expected = 1.5 * np.einsum(rule, adapter.down[...], adapter.up[...])
        np.testing.assert_allclose(adapter.product(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_run_starts_from_imported_weights_with_adapters_of_its_own(imported, tmp_path, monkeypatch):
    """import, train with another rank, resume, export: by the commands that a user gives."""
    package, folder, reference_class = imported
    name = package.model.__name__.split(".")[0]
    monkeypatch.syspath_prepend(str(folder))
    run, data = tmp_path / "run", tmp_path / "data.jsonl"
    data.write_text(json.dumps({"text": "0123456789 " * 9}) + "\n")
    data.write_text(data.read_text() * 100)
    checkpoint, checkpoints, train_command = (
        importlib.import_module(f"{name}.{module}") for module in ("checkpoint", "checkpoints", "train")
    )
    (folder / "theirs" / "tokenizer.json").unlink(missing_ok=True)

    def command(module, *arguments):
        monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        module.main()

    command(checkpoint, "import", folder / "theirs", run)
    flags = ["--tokenizer", "bytes", "--data", data, "--checkpoint-dir", run, "--sequence-length", 16, "--lora-rank", 2]
    flags += ["--batch-size", 2, "--eval-batches", 1, "--learning-rate", "0.01", "--mesh-fsdp", 1]
    command(train_command, *flags, "--steps", 2)
    command(train_command, *flags, "--steps", 3)
    mesh = package.parallel.make_mesh(fsdp=1, devices=jax.devices()[:1])
    config, model = checkpoints.load_checkpoint(str(run), mesh)
    assert config.lora_rank == 2
    command(checkpoint, "export", run, tmp_path / "merged")
    merged = reference_class.from_pretrained(tmp_path / "merged", attn_implementation="eager")
    base = reference_class.from_pretrained(folder / "theirs", attn_implementation="eager")
    tokens = tokens_of(config)[:, :-1]
    ours, theirs, unadapted = (
        np.asarray(model(tokens)),
        *(x(parity.as_torch(tokens)).logits.detach().numpy() for x in (merged, base)),
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)
    assert np.abs(theirs - unadapted).max() > 1e-3
