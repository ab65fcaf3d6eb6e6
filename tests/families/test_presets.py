"""The published presets of every family have as many parameters as their authors say."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest
from flax import nnx
from selected import mostly_slow

from families import parity
from families.cases import FAMILIES
from families.weaving import LIBRARY, woven, write
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
def test_recipes(name, tmp_path):
    """Every preset has a recipe, by which its parameters and batches divide over the mesh of that hardware."""
    made = weave(FAMILIES[name].architecture, "tpu", LIBRARY)
    package = parity.load_package(write(made, tmp_path), ("config", "parallel", "train", "step"))
    presets, recipes, hardware = package.config.PRESETS, package.config.RECIPES, package.config.HARDWARE
    assert presets.keys() - {"tiny"} == {preset for preset, _ in recipes}
    for preset, place in recipes:
        assert f"| {preset} | {place} |" in made.files["README.md"]
        settings, _ = package.train.find_recipe(preset, place)
        config = dataclasses.replace(presets[preset], **settings)
        devices = hardware[place].devices
        chip, _, sides = hardware[place].topology.partition(":")
        assert devices == math.prod(map(int, sides.split("x"))) * (2 if chip == "tpu7x" else 1)
        names = "data", "fsdp", "expert", "context", "stage", "tensor"
        axes = [axis for axis in names if hasattr(config, f"mesh_{axis}")]
        sizes = np.empty(devices).reshape([getattr(config, f"mesh_{axis}") for axis in axes]).shape
        mesh = jax.sharding.AbstractMesh(sizes, tuple(axes))
        package.parallel.abstract(lambda config=config: package.step.new_state(config), mesh)
        assert config.batch_size % (math.prod(sizes[:-1]) * config.accumulation) == 0, (preset, place)


def test_presets_without_recipes_have_a_launch_file():
    """Such as those that `gen new` writes, and nanochat's, of which there is only a tiny one."""
    launch = weave("nanochat", "tpu", LIBRARY).files["launch/jobset.yaml"]
    assert "tpu-topology: 2x2x4" in launch and "--hardware" not in launch
