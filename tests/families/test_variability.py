"""Every architecture on every target weaves, has no undefined name, and traces; its matrices decay, and they alone."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from selected import mostly_slow

from families import parity
from families.weaving import LIBRARY, abstract_batch, variant, write
from generator.recipe.recipe import select
from generator.weaver import weave

PAIRS = [(architecture, target) for architecture in LIBRARY.architectures() for target in LIBRARY.targets()]
SHORT = ("gpt2", "cpu"), ("gemma3", "gpu"), ("llama4", "tpu")


@pytest.mark.parametrize(("architecture", "target"), mostly_slow(PAIRS, *SHORT))
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
    batch = abstract_batch(1, min(config.sequence_length, 4096))
    loss, sums = jax.eval_shape(lambda model, batch: package.step.loss(model, batch, config), models[largest], batch)
    assert loss.shape == sums["cross_entropy"].shape == () and loss.dtype == jnp.float32
    decays = package.parallel.named_arrays(package.step.decays(models[largest]))
    vectors = {name for name in decays if any(word in name for word in ("norm", "bias", "sink"))}
    assert {name for name, decay in decays.items() if not decay} == vectors


@pytest.mark.parametrize(
    ("architecture", "learning"),
    mostly_slow(
        [(name, learning) for name in LIBRARY.architectures() for learning in ("lora", "muon")],
        ("gemma2", "muon"),
        ("qwen3_moe", "lora"),
    ),
)
def test_features_of_no_family_go_with_every_family(architecture, learning, tmp_path):
    """MTP layers, experts with a capacity, and adapters or Muon: a step of training traces."""
    selected = [fragment.name for fragment in select(architecture, "tpu", LIBRARY).fragments]
    more = [name for name in ("model/mtp", "train/mtp_loss") if name not in selected]
    more += ["train/muon"] if learning == "muon" else []
    without = ["model/dropless"] if "model/dropless" in selected else []
    more += ["model/expert_capacity"] if without else []
    package = variant(architecture, more, tmp_path, "tpu", without, ("all", "lora") if learning == "lora" else ("all",))
    config = dataclasses.replace(package.config.PRESETS["tiny"], batch_size=2)
    state = jax.eval_shape(lambda: package.step.new_state(config))
    new, metrics = jax.eval_shape(
        functools.partial(package.step.train_step, config=config), state, abstract_batch(2, 64)
    )
    before, after = ([(x.shape, x.dtype) for x in jax.tree.leaves(tree)] for tree in (state, new))
    assert after == before
    assert metrics["train/mtp_loss"].shape == ()
