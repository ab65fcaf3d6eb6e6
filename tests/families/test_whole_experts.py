"""Experts whole on the devices of mesh_tensor: against a dense loop, one device, and an engine on one device."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collectives import sends
from flax import nnx

from families.devices import expert_mesh, on_eight_devices
from families.test_exchange import close, compare_models, dense_loop, spread, with_gradients
from families.test_experts import choices, small
from families.test_serving import compare_engines
from families.weaving import variant
from generator.errors import LoomError

MESHES = (1, 1, 1, 8), (2, 1, 1, 4), (1, 1, 2, 4), (1, 2, 2, 2)


def compare_loop(package, meshes=MESHES) -> None:
    config = dataclasses.replace(small(package), experts=16, expert_width=24, init_std=0.5)
    experts, rng = package.model.Experts(config, nnx.Rngs(0)), np.random.default_rng(0)
    x, into = (jnp.asarray(rng.normal(size=(8, 5, config.width)), jnp.float32) for _ in range(2))
    for which, active in ("all", 3), ("one expert", 1), ("some get none", 2):
        chosen = jnp.asarray(choices(which, 8, 5, 16, active))
        inputs = x, jnp.asarray(rng.random(chosen.shape), jnp.float32), chosen, into
        expected = dense_loop(experts, *inputs)
        for sizes in meshes:
            mesh = expert_mesh(package, *sizes)
            with jax.set_mesh(mesh):
                layout = package.parallel.abstract(lambda: package.model.Experts(config, nnx.Rngs(0)), mesh)
                placed = jax.device_put(experts, jax.tree.map(lambda leaf: leaf.sharding, layout))
                close(with_gradients(package.model.apply_experts)(placed, *inputs), expected)
            _, _, expert, tensor = sizes
            (held,) = {part.data.shape[0] for part in placed.gate.kernel.get_value().addressable_shards}
            assert held == 16 // (expert * tensor)
            print(which, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_each_device_adds_what_its_experts_make(target, tmp_path):
    found = on_eight_devices(compare_loop, spread("mixtral", target, tmp_path, "model/whole_experts"))
    assert len(found) == 3 * len(MESHES)


def compare_whole_models(package) -> None:
    compare_models(package, ((2, 1, 2, 2), (1, 2, 2, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("base", ["gpt_oss", "deepseek_v3"])
def test_a_model_gives_what_it_gives_on_one_device(base, tmp_path):
    package = spread(base, "cpu", tmp_path, "model/whole_experts")
    assert on_eight_devices(compare_whole_models, package) == ["same"] * 2


def compare_served(package) -> None:
    compare_engines(package)
    config = dataclasses.replace(package.config.PRESETS["tiny"], layers=2, dtype="float32")
    mesh = package.parallel.make_mesh(1, 1, 2, jax.devices()[:2])
    engine, rows = package.engine, 4
    layout = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
    model = jax.device_put(package.model.Decoder(config, nnx.Rngs(0)), jax.tree.map(lambda x: x.sharding, layout))
    device = engine.Device(config, model, engine.EngineSettings(max_sequences=rows, max_length=64), mesh, 9, 64)
    with engine.computing(mesh):
        step = engine.run.lower(device.model, device.state, device.slots, device.dummy_step(rows, 4), 1, False)
    print(json.dumps([config.width, config.experts, sends(step.compile().as_text())]))


@pytest.mark.slow
def test_texts_are_those_of_one_device_and_no_expert_travels(tmp_path):
    *_, last = on_eight_devices(compare_served, spread("qwen3_moe", "cpu", tmp_path, "model/whole_experts"))
    width, experts, sent = json.loads(last)
    assert sent and not [shape for shape, _ in sent if int(shape.split(",")[0]) in (experts, experts // 2)]
    assert any(shape.split(",")[-1] == str(width) and kind == "all-reduce" for shape, kind in sent)


def test_both_ways_to_spread_experts_at_once_are_refused(tmp_path):
    with pytest.raises(LoomError, match="expert_exchange"):
        variant("mixtral", ["model/whole_experts", "model/expert_exchange"], tmp_path)
