"""DeepSeek V3: the biases that load moves, the cache of latents, and what is in the files of its authors."""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib

import jax
import ml_dtypes
import numpy as np
import pytest
import transformers
from flax import nnx
from safetensors.numpy import load_file

from families import parity
from families.cases import FAMILIES, PUBLISHED
from families.devices import MESHES, compare_with_one, on_eight_devices
from families.weaving import LIBRARY, batch_of, with_architecture, woven
from generator.commands.new import fit
from generator.errors import LoomError

KINDS = tomllib.loads(LIBRARY.files["templates/architectures/deepseek_v3.toml"])["kinds"]
# several stacks with experts, in another order by name than in the model
SCATTERED = f"""
base = "deepseek_v3"
title = "DeepSeek V3, experts here and there"
fragments = ["model/period"]
[[layers]]
name = "start"
pattern = ["sparse"]
count = "1"
[[layers]]
pattern = ["dense", "sparse", "sparse"]
count = "2"
[[layers]]
name = "end"
pattern = ["sparse"]
count = "1"
[kinds.dense]
fragments = {KINDS["dense"]["fragments"]}
[kinds.sparse]
fragments = {KINDS["sparse"]["fragments"]}
"""
# config.json of deepseek-ai/DeepSeek-V3, without the compression of its tensors
RELEASED = PUBLISHED["deepseek-ai/DeepSeek-V3"]


def load(name: str, text: str | None, folder):
    return woven(name, "cpu", folder, LIBRARY if text is None else with_architecture(name, text))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return load("deepseek_v3", None, tmp_path_factory.mktemp("deepseek"))


def small(package, **settings):
    sizes = dict(width=24, heads=2, experts=12, experts_per_token=3, expert_groups=3, groups_per_token=1, vocab_size=32)
    tiny = package.config.PRESETS["tiny"]
    return dataclasses.replace(tiny, **sizes, dtype="float32", batch_size=2, **settings)


def batch(config) -> dict[str, np.ndarray]:
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 13), dtype=np.int32)
    return batch_of(tokens, [5, 4])


def biases(package, model) -> dict[str, np.ndarray]:
    arrays = package.parallel.named_arrays(model)
    return {name: np.asarray(x) for name, x in arrays.items() if name.endswith("balance_bias")}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text", "stacks"), [("deepseek_v3", None, 2), ("scattered", SCATTERED, 5)])
def test_a_step_moves_each_bias_against_its_load(name, text, stacks, tmp_path):
    """Each layer is made to choose the experts of one group that is its own; the step has to find them there."""
    package = load(name, text, tmp_path)
    config = small(package, layers=8, dense_layers=2, balance_rate=0.25, learning_rate=0.0)
    state = package.step.new_state(config)
    before = {}
    for place, (path, bias) in enumerate(biases(package, state.model).items()):
        before[path] = np.zeros_like(bias)
        for layer, row in enumerate(before[path]):
            group = (place + layer) % 3
            row[4 * group : 4 * group + 3] = 10.0 + layer
    assert len(before) == stacks
    leaves = package.parallel.named_arrays(state.model) | before
    model = jax.tree.unflatten(jax.tree.structure(state.model), leaves.values())
    step = jax.jit(functools.partial(package.step.train_step, config=config))
    state, metrics = step(dataclasses.replace(state, model=model), batch(config))
    after = biases(package, state.model)
    for path, bias in before.items():
        np.testing.assert_array_equal(after[path], bias + np.where(bias > 0, -0.25, 0.25), err_msg=path)
    assert metrics["train/expert_load"] == pytest.approx(4)  # each chosen one has a third of 3, of 12


@pytest.mark.slow
def test_nothing_else_moves_a_bias(package):
    config = small(package, layers=2, dense_layers=1, balance_rate=0.0, learning_rate=0.1, warmup_ratio=0.0)
    state = package.step.new_state(config)
    start = {name: x + 0.5 for name, x in biases(package, state.model).items()}
    leaves = package.parallel.named_arrays(state.model) | start
    state = dataclasses.replace(state, model=jax.tree.unflatten(jax.tree.structure(state.model), leaves.values()))
    step = jax.jit(functools.partial(package.step.train_step, config=config))
    for _ in range(2):
        state, _ = step(state, batch(config))
    assert np.abs(np.asarray(state.model.layers.mlp.router.kernel) - leaves["layers.mlp.router.kernel"]).max() > 0.01
    for name, bias in biases(package, state.model).items():
        np.testing.assert_array_equal(bias, start[name])


def test_a_bias_chooses_and_does_not_weigh(package):
    """A bias for two experts of each group, far above all scores: these are chosen, with weights as their scores say."""
    config = small(package, layers=2, dense_layers=1)
    config = dataclasses.replace(config, experts_per_token=2)
    mlp = package.model.Decoder(config, nnx.Rngs(0)).layers.mlp
    mlp = jax.tree.map(lambda x: x[0], mlp)
    x = jax.random.normal(jax.random.key(0), (1, 5, config.width))
    mlp.balance_bias[...] = np.eye(12)[4] * 50 + np.eye(12)[6] * 50
    scores = jax.nn.sigmoid(mlp.router(x))[..., [4, 6]]
    weights = config.expert_scale * scores / scores.sum(axis=-1, keepdims=True)
    chosen = np.broadcast_to([4, 6], (1, 5, 2))
    expected = package.model.apply_experts(mlp.experts, x, weights, chosen) + mlp.shared(x)
    np.testing.assert_allclose(mlp(x, replay=None, segment_ids=None)[0], expected, atol=1e-5)


def compare_meshes(package) -> None:
    """With latents and heads split."""
    sizes = dict(heads=8, nope_size=8, rope_size=4, value_size=8, kv_rank=16, query_rank=16, mlp_width=64, layers=3)
    config = dataclasses.replace(small(package), **sizes, width=32, experts=24, expert_width=24, init_std=0.2)
    compare_with_one(package, config, lambda model: model.layers.attention.key_value.kernel)


@pytest.mark.slow
def test_any_mesh_gives_what_one_device_gives(package):
    assert on_eight_devices(compare_meshes, package) == [f"same on {sizes}" for sizes in MESHES]


def test_a_cache_holds_latents_alone(package):
    config = package.config.PRESETS["671b"]
    for drafting in 0, 1:  # MTP layers with a KV cache
        pages = jax.eval_shape(lambda drafting=drafting: package.pages.empty_pages(config, 1, 1, False, drafting))
        layers = 61 + drafting
        assert sum(x.size for x in jax.tree.leaves(pages)) == layers * (512 + 64)  # not layers * 128 * (192 + 128)


def test_the_released_size(package):
    config = package.config.PRESETS["671b"]
    model = jax.eval_shape(lambda: package.model.Decoder(config, nnx.Rngs(0)))
    mtp = sum(x.size for x in jax.tree.leaves(model.mtp))
    assert sum(x.size for x in jax.tree.leaves(model)) - mtp == 671_026_419_200
    # 37 billion parameters are active of a token, of which the embedding takes part in no product
    without = dataclasses.replace(config, sequence_length=0, mtp_layers=0)
    products = package.monitor.flops_per_token(without, causal=False) / 6
    assert products == pytest.approx(37.55e9 - 129280 * 7168, rel=1e-3)


@pytest.mark.slow
def test_the_released_settings():
    text = fit(LIBRARY, "deepseek_v3", "tpu", RELEASED, "released", "config.json")
    released = tomllib.loads(text)
    assert not {"fragments", "without", "layers", "settings"} & released.keys()
    preset = tomllib.loads(LIBRARY.files["templates/architectures/deepseek_v3.toml"])["presets"]["671b"]
    sizes = {name: value for name, value in preset.items() if name not in ("batch_size", "learning_rate")}
    assert released["presets"]["released"].items() >= sizes.items()
    for setting, value in (
        ("quantization_config", {"quant_method": "fp8"}),  # tensors in 8 bits
        ("scoring_func", "softmax"),
        ("topk_method", "greedy"),
        ("moe_layer_freq", 2),
        ("num_key_value_heads", 64),
        ("attention_bias", True),
    ):
        with pytest.raises(LoomError, match=setting):
            fit(LIBRARY, "deepseek_v3", "tpu", RELEASED | {setting: value}, "released", "config.json")


def test_biases_of_experts_are_kept_in_fp32(package, tmp_path):
    """In an export in bf16 too, as transformers keeps them; there may be no MTP layers."""
    config = transformers.DeepseekV3Config(**FAMILIES["deepseek_v3"].settings, dtype="float32")
    reference = parity.make_reference(transformers.DeepseekV3ForCausalLM, config)
    reference.save_pretrained(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs/model.safetensors")
    config, model = package.huggingface.load_hf(tmp_path / "theirs")
    package.huggingface.save_hf(config, model, tmp_path / "ours", "bfloat16")
    ours = load_file(tmp_path / "ours/model.safetensors")
    assert ours.keys() == tensors.keys()
    for name, array in ours.items():
        exact = name.endswith("e_score_correction_bias")
        np.testing.assert_array_equal(array, tensors[name] if exact else tensors[name].astype(ml_dtypes.bfloat16))
    assert json.loads((tmp_path / "ours/config.json").read_text())["num_nextn_predict_layers"] == 0
