"""Pipelines of stages: three optimizer steps against those of one device, and what is sent between stages."""

from __future__ import annotations

import dataclasses
import importlib
import math

import jax
import numpy as np
import pytest
from flax import nnx
from selected import mostly_slow

from families.devices import on_eight_devices
from families.weaving import batch_of, woven

LENGTH = 32
# sizes of the mesh, microbatches and repeats
DENSE = ({"stage": 4, "fsdp": 2}, 0, 1), ({"stage": 2, "fsdp": 2, "tensor": 2}, 4, 2)
SPARSE = ({"stage": 2, "fsdp": 2, "expert": 2}, 0, 1), ({"stage": 2, "expert": 2, "tensor": 2}, 4, 2)


def compare_steps(package) -> None:
    """Takes three optimizer steps on packed documents, on each mesh and on one device."""
    tiny = package.config.PRESETS["tiny"]
    sizes = dict(vocab_size=264, sequence_length=LENGTH, batch_size=16, accumulation=1, gradient_dtype="float32")
    # Adam's update is then a smooth function of the gradient: its sign would be one of rounding
    run = dict(dtype="float32", learning_rate=0.01, warmup_ratio=0.0, max_gradient_norm=1e9, adam_epsilon=0.1)
    config = dataclasses.replace(tiny, **sizes, **run, remat="full")
    tokens = np.random.default_rng(0).integers(0, 256, (3, 16, LENGTH + 1), dtype=np.int32)
    batches = [batch_of(each, *([13, 12] if row % 3 else [5, 20] for row in range(16))) for each in tokens]
    data = importlib.import_module(f"{package.model.__package__}.data")

    def train(devices, config, fsdp=1, tensor=1, **others):
        copies = len(devices) // math.prod((fsdp, tensor, *others.values()))
        mesh = package.parallel.make_mesh(copies, fsdp, tensor, devices, **others)
        abstract = data.abstract_batch(config, mesh)
        with jax.set_mesh(mesh):
            state = package.train.create_state(config, mesh)
            step = package.train.compile_step(state, abstract)
            losses = []
            for batch in batches:
                placed = {name: jax.device_put(batch[name], x.sharding) for name, x in abstract.items()}
                state, metrics = step(state, placed)
                losses.append(metrics["train/loss"])
            return [np.asarray(x) for x in (*losses, *jax.tree.leaves(nnx.pure(state.model)))]

    for mesh, parts, repeats in SPARSE if hasattr(config, "mesh_expert") else DENSE:
        config = dataclasses.replace(config, layers=4, pipeline_microbatches=parts, pipeline_repeats=repeats)
        expected = train(jax.devices()[:1], config)
        worst = 0
        for ours, theirs in zip(train(jax.devices(), config, **mesh), expected, strict=True):
            worst = max(worst, abs(ours - theirs).max() / abs(theirs).max())
        print("equal", mesh, parts, repeats, worst)


@pytest.mark.parametrize("family", mostly_slow(["llama2", "qwen3_moe"], "llama2"))
def test_any_pipeline_gives_what_one_device_gives(family, tmp_path):
    """With packed documents, and the sums over tokens of routers."""
    found = on_eight_devices(compare_steps, woven(family, "cpu", tmp_path))
    print(found)
    assert len(found) == 2
