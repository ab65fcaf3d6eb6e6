"""Pipelines of stages: three optimizer steps against those of one device, and what is sent between stages."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import json
import math

import jax
import numpy as np
import pytest
from collectives import sends
from flax import nnx
from selected import mostly_slow

from families.devices import bound_of, on_eight_devices
from families.weaving import batch_of, with_architecture, woven

LENGTH = 32
# family -> sizes of the model; and of each mesh, beside data, which takes the devices left; microbatches; repeats
CASES = {
    "llama2": (
        {"layers": 4},
        ({"stage": 4, "fsdp": 2}, 0, 1),
        ({"stage": 2, "fsdp": 2, "tensor": 2}, 4, 2),
        ({"stage": 2, "context": 2, "tensor": 2}, 0, 1),
    ),
    "qwen3_moe": (
        {"layers": 4},
        ({"stage": 2, "fsdp": 2, "expert": 2}, 0, 1),
        ({"stage": 2, "expert": 2, "tensor": 2}, 4, 2),
        ({"stage": 2, "context": 2, "expert": 2}, 0, 1),
    ),
    "gemma3_short": ({"layers": 6, "window": 8}, ({"stage": 2, "fsdp": 2, "context": 2}, 4, 1)),
    "deepseek_v3": ({"layers": 4, "dense_layers": 2}, ({"stage": 2, "context": 2, "expert": 2}, 4, 1)),
    "gpt_oss": ({"layers": 8, "window": 8}, ({"stage": 2, "expert": 2, "tensor": 2}, 4, 2)),  # 4 periods
}
# Gemma 3 in periods of two layers rather than six, which compile faster: two periods and, in a scan of their own, two
# layers
SHORT = """
base = "gemma3"
title = "Gemma 3 in short periods"
settings = { window_period = 2 }

[[layers]]
pattern = ["local", "full"]
count = "config.layers // 2 - 1"

[[layers]]
name = "last"
pattern = ["local"]
count = "config.layers % 2 + 2"
"""


def compare_steps(package) -> None:
    """Takes three optimizer steps on packed documents, on each mesh and on one device."""
    tiny = package.config.PRESETS["tiny"]
    layers, *meshes = CASES[package.model.__package__.removesuffix("_cpu")]
    sizes = dict(layers, vocab_size=264, sequence_length=LENGTH, batch_size=16, accumulation=1)
    # Adam's update is then a smooth function of the gradient: its sign would be one of rounding
    run = dict(learning_rate=0.01, warmup_ratio=0.0, max_gradient_norm=1e9, adam_epsilon=0.1, remat="full")
    config = dataclasses.replace(tiny, **sizes, **run, dtype="float32", gradient_dtype="float32")
    tokens = np.random.default_rng(0).integers(0, 256, (3, 16, LENGTH + 1), dtype=np.int32)
    # documents differ from row to row, so that each row must keep its own through all stages
    batches = [batch_of(each, *([13, 12] if row % 3 else [5, 20] for row in range(16))) for each in tokens]
    data = importlib.import_module(f"{package.model.__package__}.data")

    def train(devices, config, fsdp=1, tensor=1, **others):
        copies = len(devices) // math.prod((fsdp, tensor, *others.values()))
        mesh = package.parallel.make_mesh(copies, fsdp, tensor, devices, **others)
        abstract = data.abstract_batch(config, mesh)
        with jax.set_mesh(mesh):
            state = package.step.create_state(config, mesh)
            assert {x.sharding.spec[0] for x in jax.tree.leaves(state.model.layers)} == {"stage"}
            step = package.step.compile_step(state, abstract, config)
            losses = []
            for batch in batches:
                placed = {name: jax.device_put(batch[name], x.sharding) for name, x in abstract.items()}
                state, metrics = step(state, placed)
                losses.append(metrics["train/loss"])
            return [np.asarray(x) for x in (*losses, *jax.tree.leaves(nnx.pure(state.model)))]

    expected = train(jax.devices()[:1], config)
    bound = bound_of(package)
    for mesh, parts, repeats in meshes:
        config = dataclasses.replace(config, pipeline_microbatches=parts, pipeline_repeats=repeats)
        for ours, theirs in zip(train(jax.devices(), config, **mesh), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound * abs(theirs).max())
        print("equal", mesh)


@pytest.mark.parametrize("family", mostly_slow(CASES, "llama2"))
def test_any_pipeline_gives_what_one_device_gives(family, tmp_path):
    """Dense and sparse, whose routers' sums over tokens are those of all microbatches; several scans over layers."""
    package = woven(family, "cpu", tmp_path, with_architecture("gemma3_short", SHORT))
    assert len(on_eight_devices(compare_steps, package)) == len(CASES[family]) - 1


def count_collectives(package) -> None:
    """What a step of 8 layers sends, where 4 microbatches of 2 rows go through 2 stages, once and twice; bad sizes."""
    sizes = dict(layers=8, width=64, heads=8, kv_heads=8, head_size=8, mlp_width=96, vocab_size=264)
    run = dict(sequence_length=48, batch_size=8, remat="full", dtype="float32", pipeline_microbatches=4)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes, **run)
    mesh = package.parallel.make_mesh(1, 1, 1, jax.devices()[:2], stage=2)
    data = importlib.import_module(f"{package.model.__package__}.data")
    for repeats in 1, 2:
        with jax.set_mesh(mesh):
            repeated = dataclasses.replace(config, pipeline_repeats=repeats)
            state = package.parallel.abstract(lambda config=repeated: package.step.new_state(config), mesh)
            compiled = package.step.compile_step(state, data.abstract_batch(repeated, mesh), repeated)
        found = [
            (math.prod(map(int, shape.split(","))), kind) for shape, kind in sends(compiled.as_text()) if "," in shape
        ]
        print(json.dumps(found))
    for bad in {"pipeline_microbatches": 3}, {"batch_size": 6}, {"layers": 6, "pipeline_repeats": 2}:
        with pytest.raises(package.errors.InputError) as refused:
            data.abstract_batch(dataclasses.replace(config, **bad), mesh)
        print(refused.value)


@pytest.mark.slow
def test_stages_send_microbatches_and_the_batch_twice(tmp_path):
    """A microbatch to the next stage, forwards and backwards; parameters only with repeats, and once in each direction."""
    once, twice, *refused = on_eight_devices(count_collectives, woven("llama2", "cpu", tmp_path))
    x, matrices = 8 * 48 * 64, 8 * (4 * 64 * 64 + 3 * 64 * 96)
    microbatches = {"collective-permute": 2 * x // 4}  # in a loop of iterations, and in that of their gradients
    assert totals(json.loads(once)) == microbatches | {"all-reduce": 2 * x}  # the output forwards, the input backwards
    found = totals(json.loads(twice))
    assert found.pop("all-to-all") >= 2 * matrices // 2  # of the stage, and of their gradients
    assert found == microbatches | {"all-reduce": 2 * x}
    assert refused == [
        "--pipeline-microbatches 3: must be a multiple of --mesh-stage, 2",
        "--pipeline-microbatches 4: --batch-size 6 must be a multiple of "
        "--accumulation x --pipeline-microbatches x data x fsdp, 4",
        "--mesh-stage 2 --pipeline-repeats 2: their product must divide --layers 6",
    ]


def totals(found: list) -> dict[str, int]:
    """The numbers sent in collectives of each kind."""
    table: collections.Counter[str] = collections.Counter()
    for count, kind in found:
        table[kind] += count
    return dict(table)
