"""Engines whose model is split over devices, and whose weights are in bf16."""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from selected import mostly_slow

from families import parity
from families.devices import on_eight_devices
from families.weaving import LIBRARY, write
from generator.weaver import weave

# heads by heads; latents, which no device has a part of, and experts; biases of experts, sinks, and another kernel
PACKAGES = ("llama2", "cpu"), ("deepseek_v3", "cpu"), ("gpt_oss", "tpu")


@pytest.fixture(
    scope="module",
    params=[pytest.param(it, marks=pytest.mark.slow if it[0] != "llama2" else ()) for it in PACKAGES],
    ids="_".join,
)
def folder(request, tmp_path_factory):
    return write(weave(*request.param, LIBRARY), tmp_path_factory.mktemp("packages"))


def small(package, dtype: str):
    sizes = dict(width=32, heads=4, vocab_size=64, context_length=64, init_std=0.2, dtype=dtype)
    return dataclasses.replace(package.config.PRESETS["tiny"], **sizes)


def compare_engines(package, lengths=(1, 9, 30), rows=3, chunk=16, warm_up=True) -> None:
    """Compares texts and log-probabilities with those of an engine on one device."""
    config, engine = small(package, "float32"), package.engine
    model = jax.jit(lambda: package.model.Decoder(config, nnx.Rngs(0)))()
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 64, length).tolist() for length in lengths]
    sampling = engine.SamplingParams(max_tokens=9, prompt_logprobs=True)
    expected, scored, draft_tokens = [], {}, 1 if hasattr(config, "mtp_layers") else 0  # of the MTP layer
    ways = {(1, 0, False), (2, 0, False), (2, draft_tokens, False), (1, 0, True), (2, draft_tokens, True)}
    for devices, drafted, int8 in sorted(ways):
        mesh = package.parallel.make_mesh(1, 1, devices, jax.devices()[:devices])
        layout = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
        split = jax.device_put(model, jax.tree.map(lambda x: x.sharding, layout))
        sizes = dict(max_sequences=rows, max_length=48, page_size=4, chunk=chunk)
        settings = engine.EngineSettings(**sizes, draft_tokens=drafted, int8_kv_cache=int8)
        subject = engine.Engine(config, split, set(), settings, mesh)
        if warm_up:
            list(subject.warm_up())
        requests = subject.generate(prompts, sampling)
        scored[devices, int8] = np.concatenate([request.prompt_logprobs for request in requests])
        if not int8:
            expected = expected or requests
            for request, alone in zip(requests, expected, strict=True):
                assert request.tokens == alone.tokens
                found, wanted = ([*of.prompt_logprobs, *of.logprobs] for of in (request, alone))
                np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=0)
        (parts,) = {
            len({str(part.index) for part in x.addressable_shards}) for x in jax.tree.leaves(subject.device.state.key)
        }
        said = f"the pages of {devices} devices are in {parts} parts"
        print(said + ", with draft tokens" * drafted + ", in 8 bits" * int8)
    # in int8, numbers halfway between two are rounded either way, as the order of sums changes their last bits
    rounding, order = (np.abs(scored[1, True] - x).mean() for x in (scored[1, False], scored[2, True]))
    assert 10 * order < rounding < 0.1, (order, rounding)


def compare_small_engines(package) -> None:
    """Compares engines with three programs each."""
    compare_engines(package, (7, 15), rows=2, chunk=8, warm_up=False)


@pytest.mark.parametrize("compare", mostly_slow([compare_small_engines, compare_engines], compare_small_engines))
def test_any_number_of_devices_gives_the_same_texts(folder, compare):
    package = parity.load_package(folder)
    parts = 1 if hasattr(package.config.PRESETS["tiny"], "kv_rank") else 2
    expected = ["the pages of 1 devices are in 1 parts", f"the pages of 2 devices are in {parts} parts"]
    drafted = ", with draft tokens" * (parts == 1)
    expected += [f"the pages of 2 devices are in {parts} parts{drafted}"] * (parts == 1)
    expected.insert(1, f"{expected[0]}, in 8 bits")
    expected += [f"the pages of 2 devices are in {parts} parts{drafted}, in 8 bits"]
    assert on_eight_devices(compare, package) == expected


def compare_int8(package) -> None:
    """Compares int8 kernels with the numbers that they stand for, on one device and on two."""
    config, engine = small(package, "float32"), package.engine
    weights, formats = (importlib.import_module(f"{package.model.__package__}.{x}") for x in ("weights", "quantized"))
    model = jax.jit(lambda: package.model.Decoder(config, nnx.Rngs(0)))()
    sampling = engine.SamplingParams(max_tokens=9, prompt_logprobs=True)
    draft_tokens = 1 if hasattr(config, "mtp_layers") else 0  # of the MTP layer
    settings = engine.EngineSettings(max_sequences=1, max_length=48, page_size=4, chunk=16, draft_tokens=draft_tokens)

    def is_int8(x: object) -> bool:
        return isinstance(x, formats.Int8)

    with tempfile.TemporaryDirectory() as folder:
        package.huggingface.save_hf(config, model, Path(folder, "hf"))
        given = weights.ModelSettings(hf=f"{folder}/hf", dtype="float32", int8=True)
        loaded = [weights.load_to_serve(dataclasses.replace(given, mesh_tensor=devices)) for devices in (1, 2)]
    _, alone, mesh = loaded[0]
    meant = jax.tree.map(lambda x: x.astype("float32") if is_int8(x) else x, alone, is_leaf=is_int8)
    trained = package.parallel.named_arrays(model)
    for name, x in package.parallel.named_arrays(meant).items():
        error = np.linalg.norm(x - trained[name]) / max(np.linalg.norm(trained[name]), 1e-9)
        is_kernel = name.endswith("kernel") and "router" not in name
        assert (1e-3 < error < 1e-2) if is_kernel else error == 0, f"{name}: {error}"
    expected = []
    for served, over in (meant, mesh), *((model, mesh) for _, model, mesh in loaded):
        subject = engine.Engine(config, served, set(), settings, over)
        (request,) = subject.generate([[*range(20)]], sampling)
        found = [*request.prompt_logprobs, *request.logprobs]
        expected = expected or found
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    print("same")


@pytest.mark.slow
def test_kernels_in_int8_are_used_as_the_numbers_that_they_stand_for(folder):
    assert on_eight_devices(compare_int8, parity.load_package(folder))[-1] == "same"


def test_weights_in_bfloat16_give_the_same_logits(folder, tmp_path):
    """Products round weights anyway, so rounding them on loading changes nothing."""
    package = parity.load_package(folder)
    config = small(package, "bfloat16")
    model = jax.jit(lambda: package.model.Decoder(config, nnx.Rngs(0)))()
    package.huggingface.save_hf(config, model, tmp_path / "hf")
    weights = importlib.import_module(f"{folder.name}.weights")
    _, served, _ = weights.load_to_serve(weights.ModelSettings(hf=str(tmp_path / "hf"), dtype="bfloat16"))
    names = package.parallel.named_arrays(served)
    assert {str(x.dtype) for name, x in names.items() if "attention.out.kernel" in name} == {"bfloat16"}
    tokens = np.random.default_rng(0).integers(0, 64, (2, 20))
    logits = jax.jit(lambda model, tokens: model(tokens))
    if folder.name.endswith("cpu"):  # where layers are served unstacked
        served = importlib.import_module(f"{folder.name}.device").stack(served)
    np.testing.assert_array_equal(logits(served, tokens), logits(model, tokens))
