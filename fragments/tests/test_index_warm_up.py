"""Warm-up of indexers: they alone change, and their ranks approach attention's weights."""

import dataclasses
import functools

import jax
import numpy as np

from generator.language import requires
from generator.language.roles import SMALL, arrays, random_batch, state_for, train_step

requires("index_warm_up")


def test_indexers_alone_learn():
    config = dataclasses.replace(SMALL, index_keys=4, learning_rate=1e-2, warmup_ratio=0.0, steps=30)
    step = jax.jit(functools.partial(train_step, config=config))
    batch = random_batch(config)
    state = state_for(config)
    before = arrays(state.model)
    divergences = []
    for _ in range(config.steps):
        state, metrics = step(state, batch)
        divergences.append(float(metrics["train/index_divergence"]))
    changed = {name for name, x in arrays(state.model).items() if not np.array_equal(x, before[name])}
    assert changed == {name for name in before if ".indexer." in name}
    assert divergences[-1] < divergences[0] / 2, divergences
