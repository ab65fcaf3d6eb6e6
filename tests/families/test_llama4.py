"""Llama 4: the config.json of its released checkpoints, and what its chunks leave to the experts."""

from __future__ import annotations

import dataclasses
import tomllib

import jax
import numpy as np
import pytest
from flax import nnx

from families.weaving import LIBRARY, batch_of, woven
from generator.commands.new import fit
from generator.errors import LoomError

# text_config of the released files, as far as it bears on the structure
RELEASED = dict(
    model_type="llama4_text",
    attention_chunk_size=8192,
    head_dim=128,
    hidden_act="silu",
    hidden_size=5120,
    initializer_range=0.02,
    intermediate_size=8192,
    intermediate_size_mlp=16384,
    max_position_embeddings=262144,
    no_rope_layers=[],
    num_attention_heads=40,
    num_experts_per_tok=1,
    num_hidden_layers=48,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
    rope_theta=500_000.0,
    router_aux_loss_coef=0.001,
    router_jitter_noise=0.0,
    vocab_size=202048,
)
SCALED = dict(factor=16.0, high_freq_factor=1.0, low_freq_factor=1.0, original_max_position_embeddings=8192)
SCOUT = RELEASED | dict(num_local_experts=16, attn_temperature_tuning=4, rope_scaling=SCALED | {"rope_type": "llama3"})
MAVERICK = RELEASED | dict(
    num_local_experts=128, interleave_moe_layer_step=2, rope_scaling=None, use_qk_norm=False, attn_scale=0.1
)


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
        (dict(no_rope_layers=[0] * 48), "no layer is 'chunked' or 'dense_chunked'"),
        (dict(moe_layers=[]), "moe_layers is \\[\\]: no layer is 'chunked' or 'full' then"),
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
    _, sums = package.train.loss(package.model.Decoder(config, nnx.Rngs(0)), batch, config)
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
    assert package.train.flops_per_token(config, causal=True) == pytest.approx(expected)
