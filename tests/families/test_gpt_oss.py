"""Sinks and the biases of experts: their gradients in each kernel, and over devices that share heads and experts."""

from __future__ import annotations

import dataclasses
import json
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from families import parity
from families.cases import PUBLISHED
from families.devices import MESHES, on_eight_devices
from families.weaving import LIBRARY, write
from generator.commands.new import fit
from generator.errors import LoomError
from generator.weaver import weave

RELEASED = PUBLISHED["openai/gpt-oss-20b"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt_oss")
    for target in "cpu", "tpu":
        write(weave("gpt_oss", target, LIBRARY), folder)
    return folder


def random_model(package, dtype="float32"):
    """A model whose parameters are all random, those too that start as zeros; and tokens."""
    sizes = dict(width=16, layers=2, heads=8, kv_heads=8, head_size=4, vocab_size=32, window=5)
    experts = dict(experts=8, experts_per_token=3, expert_width=24, swiglu_limit=0.5)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes, **experts, dtype=dtype)
    leaves, tree = jax.tree.flatten(package.model.Decoder(config, nnx.Rngs(0)))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    leaves = [0.5 * jax.random.normal(key, x.shape) for key, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, leaves), np.arange(8 * 16, dtype=np.int32).reshape(8, 16) % 32


@jax.jit
@jax.value_and_grad
def value_and_gradient(model, tokens):
    return jnp.mean(jnp.sin(model(tokens)))


def test_splash_has_the_gradients_of_plain_attention(folder):
    found = {}
    for target in "cpu", "tpu":
        package = parity.load_package(folder / f"gpt_oss_{target}")
        found[target] = package.parallel.named_arrays(value_and_gradient(*random_model(package)))
    for name, expected in found["cpu"].items():
        error = np.linalg.norm(found["tpu"][name] - expected)
        assert error < 1e-3 * np.linalg.norm(expected), f"{name}: {error}"
        assert np.linalg.norm(expected) > 1e-6, name


def compare_meshes(package) -> None:
    """On 8 devices: each mesh gives the value and the gradients that one device gives."""
    model, tokens = random_model(package)
    expected = package.parallel.named_arrays(value_and_gradient(model, tokens))
    half, _ = random_model(package, "bfloat16")
    for sizes in MESHES:
        mesh = package.parallel.make_mesh(*sizes)
        with jax.set_mesh(mesh):
            layout = package.parallel.abstract(lambda: model, mesh)
            sharded = jax.device_put(model, jax.tree.map(lambda x: x.sharding, layout))
            sinks = sharded.layers.full.attention.sinks[...]
            assert sinks.size == sinks.addressable_shards[0].data.size * sizes[2]
            actual = package.parallel.named_arrays(value_and_gradient(sharded, tokens))
            traced = jax.eval_shape(value_and_gradient, half, tokens)
        assert {x.dtype for x in jax.tree.leaves(traced)} == {jnp.dtype("float32")}
        for name, x in actual.items():
            np.testing.assert_allclose(x, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
        print("same on", sizes)


@pytest.mark.slow
def test_any_mesh_gives_what_one_device_gives(folder):
    package = parity.load_package(folder / "gpt_oss_tpu")
    assert on_eight_devices(compare_meshes, package) == [f"same on {sizes}" for sizes in MESHES]


def test_the_released_config_is_the_preset():
    text = fit(LIBRARY, "gpt_oss", "cpu", RELEASED, "mine", "config.json")
    mine = tomllib.loads(text)
    assert mine.keys() == {"base", "title", "presets"}
    defaults = dict(init_std=0.02, norm_epsilon=1e-5, swiglu_alpha=1.702, swiglu_limit=7.0)
    ours = tomllib.loads(LIBRARY.files["templates/architectures/gpt_oss.toml"])["presets"]["20b"]
    assert {name: mine["presets"]["mine"][name] for name in ours} == ours
    assert mine["presets"]["mine"] | defaults == mine["presets"]["mine"]


def test_other_quantized_weights_are_refused_by_name(folder, tmp_path):
    package = parity.load_package(folder / "gpt_oss_cpu")
    (tmp_path / "config.json").write_text(json.dumps(RELEASED | {"quantization_config": {"quant_method": "awq"}}))
    with pytest.raises(
        package.huggingface.InputError, match=r'config.json: quantization_config is {"quant_method": "awq"'
    ):
        package.huggingface.load_hf(tmp_path)


def test_an_attention_without_biases_is_refused():
    released = RELEASED | {"quantization_config": None, "attention_bias": False}
    with pytest.raises(LoomError, match="attention_bias is false, and gpt_oss is woven for true"):
        fit(LIBRARY, "gpt_oss", "cpu", released, "mine", "config.json")
