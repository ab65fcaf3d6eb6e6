"""Llama 4: the config.json of its released checkpoints, and what its chunks leave to the experts."""

from __future__ import annotations

import dataclasses
import tomllib

import jax
import numpy as np
import pytest
from flax import nnx

from families.cases import PUBLISHED
from families.weaving import LIBRARY, batch_of, woven
from generator.commands.new import fit
from generator.errors import LoomError

# as they were pretrained, with a shorter context
PRETRAINED = dict(max_position_embeddings=262144)
SCOUT = PUBLISHED["meta-llama/Llama-4-Scout-17B-16E-Instruct"] | PRETRAINED
MAVERICK = PUBLISHED["meta-llama/Llama-4-Maverick-17B-128E-Instruct"] | PRETRAINED


def fitted(settings: dict) -> dict:
    return tomllib.loads(fit(LIBRARY, "llama4", "cpu", settings, "mine", "config.json"))


def test_scout_is_the_family_itself():
    table = fitted(SCOUT)
    assert set(table) == {"base", "title", "presets"}
    preset = tomllib.loads(LIBRARY.files["templates/architectures/llama4.toml"])["presets"]["17b-16e"]
    assert preset.items() <= table["presets"]["mine"].items()


def test_maverick_is_what_its_architecture_says():
    table = fitted(MAVERICK)
    ours = tomllib.loads(LIBRARY.files["templates/architectures/llama4_maverick.toml"])
    assert [group["pattern"] for group in table["layers"]] == [group["pattern"] for group in ours["layers"]]
    selected = {name for kind in table["kinds"].values() for name in kind["fragments"]}
    assert "model/attention_temperature" in selected and selected.isdisjoint(ours["without"])
    assert ours["presets"]["17b-128e"].items() <= table["presets"]["mine"].items()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (dict(layer_types=["full_attention"] * 48), "layer_types is"),
        (dict(no_rope_layers=[1] * 48), "attn_temperature_tuning is true"),
        (dict(no_rope_layers=[0] * 48), "model/scaled_rope requires rope, which is not selected"),
        (dict(moe_layers=[]), "model/dense_layers requires shared_expert, which is not selected"),
        (dict(hidden_act="gelu"), 'hidden_act is "gelu"'),
    ],
)
def test_other_structures_are_refused(settings, problem):
    with pytest.raises(LoomError, match=problem):
        fitted(SCOUT | settings)


def test_padding_goes_to_no_expert(tmp_path):
    package = woven("llama4", "cpu", tmp_path)
    sizes = dict(width=32, expert_width=16, mlp_width=16, chunk_size=3, experts_per_token=2, vocab_size=32)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes)
    tokens = np.random.default_rng(0).integers(0, 32, (2, 16), dtype=np.int32)
    batch = batch_of(tokens, [15], [5, 4])
    _, sums = package.step.loss(package.model.Decoder(config, nnx.Rngs(0)), batch, config)
    np.testing.assert_array_equal(sums["expert_load"].sum(axis=-1), [2 * (15 + 9)] * config.layers)


def test_flops_are_those_of_the_products_and_of_what_tokens_see(tmp_path):
    package = woven("llama4_maverick", "cpu", tmp_path)
    config = dataclasses.replace(package.config.PRESETS["tiny"], layers=8, sequence_length=150, experts_per_token=3)
    model = jax.eval_shape(lambda: package.model.Decoder(config, nnx.Rngs(0)))
    products = 0.0
    for name, kernel in package.parallel.named_arrays(model).items():
        share = config.experts_per_token / config.experts if ".experts." in name else 1
        products += share * kernel.size if name.endswith(("kernel", "head")) else 0
    numbers = np.arange(150)
    seen = 6 * np.mean(numbers % config.chunk_size + 0.5) + 2 * np.mean(
        numbers + 0.5
    )  # in eight layers, two of them full
    expected = 6 * products + 12 * config.heads * config.head_size * seen
    assert package.monitor.flops_per_token(config, causal=True) == pytest.approx(expected)
