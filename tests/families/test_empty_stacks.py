"""Layers left over by whole periods: a stack that is empty, and a number of layers that is refused."""

from __future__ import annotations

import dataclasses
import importlib
import sys

import jax
import numpy as np
import pytest
from flax import nnx

from families.weaving import LIBRARY, write
from generator.weaver import weave


def test_saved_and_read_again(tmp_path, monkeypatch):
    folder = write(weave("gemma3", "cpu", LIBRARY), tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    checkpoint = importlib.import_module(f"{folder.name}.checkpoints")
    package = importlib.import_module(folder.name)
    config = dataclasses.replace(package.PRESETS["tiny"], layers=6, width=32, mlp_width=48)
    model = jax.jit(lambda: importlib.import_module(f"{folder.name}.model").Decoder(config, nnx.Rngs(0)))()
    assert 0 in {x.size for x in jax.tree.leaves(model)}
    checkpoints = checkpoint.Checkpoints(str(tmp_path / "run"), config).open()
    checkpoints.save(0, {"model": model})
    checkpoints.manager.wait_until_finished()
    mesh = importlib.import_module(f"{folder.name}.parallel").make_mesh()
    _, again = checkpoint.load_checkpoint(str(tmp_path / "run"), mesh)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["cohere2", "smollm3"])
def test_a_model_does_without_no_layer(architecture, tmp_path, monkeypatch):
    """Made by hand, without the check of a program: layers that no period holds would be left out in silence."""
    folder = write(weave(architecture, "cpu", LIBRARY), tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    package = importlib.import_module(folder.name)
    config = dataclasses.replace(package.PRESETS["tiny"], layers=5)
    with pytest.raises(Exception, match="--layers 5: must be a multiple of the period, 4"):
        jax.eval_shape(lambda: importlib.import_module(f"{folder.name}.model").Decoder(config, nnx.Rngs(0)))
