"""Every architecture on every target: it weaves, has no undefined name, and traces at its largest preset."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from families import parity
from families.test_parity import LIBRARY, write
from generator.weave import weave

PAIRS = [(architecture, target) for architecture in LIBRARY.architectures() for target in LIBRARY.targets()]


@pytest.mark.parametrize(("architecture", "target"), PAIRS)
def test_traces(architecture, target, tmp_path):
    folder = write(weave(architecture, target, LIBRARY), tmp_path)
    linted = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", folder], capture_output=True, text=True
    )
    assert linted.returncode == 0, linted.stdout
    package = parity.load_package(folder)
    models = {
        name: jax.eval_shape(lambda config=config: package.model.Decoder(config, nnx.Rngs(0)))
        for name, config in package.config.PRESETS.items()
    }
    largest = max(models, key=lambda name: sum(x.size for x in jax.tree.leaves(models[name])))
    config = package.config.PRESETS[largest]
    shape = 1, min(config.sequence_length, 4096)
    batch = {name: jax.ShapeDtypeStruct(shape, jnp.int32) for name in ("tokens", "targets", "positions", "segment_ids")}
    batch["weights"] = jax.ShapeDtypeStruct(shape, jnp.float32)
    loss, sums = jax.eval_shape(lambda model, batch: package.train.loss(model, batch, config), models[largest], batch)
    assert loss.shape == sums["cross_entropy"].shape == () and loss.dtype == jnp.float32
