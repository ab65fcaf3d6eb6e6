"""The published presets of every family have as many parameters as their authors say."""

from __future__ import annotations

import dataclasses
import importlib
import math

import jax
import numpy as np
import pytest
import tyro
from flax import nnx
from selected import mostly_slow

from families import parity
from families.cases import FAMILIES
from families.weaving import LIBRARY, woven, write
from generator.recipe.recipe import select
from generator.weaver import weave

NAMES = mostly_slow(FAMILIES, "llama2", "qwen3_moe", "deepseek_v3", "gemma3")


@pytest.mark.parametrize("name", NAMES)
def test_parameters(name, tmp_path):
    family = FAMILIES[name]
    package = woven(family.architecture, "tpu", tmp_path)
    assert set(package.config.PRESETS) == {"tiny", *family.published}
    for preset, (billions, source) in family.published.items():
        config = package.config.PRESETS[preset]
        model = jax.eval_shape(lambda config=config: package.model.Decoder(config, nnx.Rngs(0)))
        count = sum(x.size for x in jax.tree.leaves(model))
        assert count == pytest.approx(billions * 1e9, abs=0.6e6 if billions < 100 else 0.6e8), f"{preset}: {source}"


@pytest.mark.parametrize("name", NAMES)
def test_slices(name, tmp_path):
    """On each slice that the README names, parameters and batches of a preset divide over its mesh."""
    made = weave(FAMILIES[name].architecture, "tpu", LIBRARY)
    package = parity.load_package(write(made, tmp_path))
    compiler = importlib.import_module(f"{package.config.__package__}.compile")
    presets, slices = package.config.PRESETS, select(FAMILIES[name].architecture, "tpu", LIBRARY).settings["slices"]
    assert presets.keys() - {"tiny"} <= slices.keys()
    for preset in presets.keys() - {"tiny"}:
        for flags in slices[preset]:
            assert f"| {preset} | `{flags}` |" in made.files["README.md"]
            default = compiler.CompileCommand(dataclasses.replace(presets[preset], batch_size=-1))
            arguments = ["--topology", *flags.split()]
            command = tyro.cli(compiler.CompileCommand, args=arguments, default=default)
            chip, _, sides = command.topology.partition(":")
            devices = math.prod(map(int, sides.split("x"))) * (2 if chip == "tpu7x" else 1)
            config = command.config
            axes = [
                axis
                for axis in ("data", "fsdp", "expert", "context", "stage", "tensor")
                if hasattr(config, f"mesh_{axis}")
            ]
            sizes = np.empty(devices).reshape([getattr(config, f"mesh_{axis}") for axis in axes]).shape
            mesh = jax.sharding.AbstractMesh(sizes, tuple(axes))
            package.parallel.abstract(lambda config=config: package.train.new_state(config), mesh)
            size = devices * command.batch_per_device if config.batch_size == -1 else config.batch_size
            assert size % (math.prod(sizes[:-1]) * config.accumulation) == 0, flags
