"""Steps that go wrong: gradients that are not finite, evaluation that takes too much memory."""

import dataclasses
import functools
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language.roles import (
    SMALL,
    eval_step,
    learning_rate,
    new_state,
    random_batch,
    train_step,
)


def equal(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_without_finite_gradients_changes_nothing_but_its_number(accumulation):
    """Afterwards the run continues as if it had never seen that batch."""
    config = dataclasses.replace(SMALL, accumulation=accumulation)
    step = jax.jit(functools.partial(train_step, config=config))
    good = random_batch(config)
    bad = good | {"weights": good["weights"].copy()}
    bad["weights"][0, 0] = np.inf
    start, metrics = step(jax.jit(lambda: new_state(config))(), good)
    assert not metrics["train/skipped"] and math.isfinite(metrics["train/loss"])
    after, metrics = step(start, bad)
    assert metrics["train/skipped"] and not math.isfinite(metrics["train/loss"])
    assert after.step == 2 and equal((after.model, after.opt_state), (start.model, start.opt_state))
    state, metrics = step(after, good)
    other, _ = step(start, good)
    assert not metrics["train/skipped"] and equal((state.model, state.opt_state), (other.model, other.opt_state))
    # the reported rate is the one that the optimizer applied; skipped steps do not count
    np.testing.assert_allclose(metrics["train/learning_rate"], learning_rate(1, config), rtol=1e-6)
    assert not equal(state.model, start.model)


def test_gradients_that_are_none_are_not_taken_though_the_loss_is_finite(monkeypatch):
    module = sys.modules[train_step.__module__]
    plain = module.loss
    start = jax.jit(lambda: new_state(SMALL))()

    def steep(model, batch, config):  # adds 0, whose slope is infinite
        total, sums = plain(model, batch, config)
        return total + jnp.sqrt(0 * jax.tree.leaves(model)[0].sum()), sums

    monkeypatch.setattr(module, "loss", steep)
    after, metrics = jax.jit(lambda *x: train_step(*x, SMALL))(start, random_batch(SMALL))  # traced again
    assert metrics["train/skipped"] and math.isfinite(metrics["train/loss"])
    assert equal((after.model, after.opt_state), (start.model, start.opt_state))


def test_evaluation_takes_no_more_memory_than_its_microbatches():
    """With accumulation 8, an eighth of the activations: less than a third of the memory, the same sums."""
    whole = dataclasses.replace(SMALL, batch_size=16, sequence_length=128)
    batch = random_batch(whole)
    sums, memory = [], []
    for config in whole, dataclasses.replace(whole, accumulation=8):
        model = jax.jit(lambda config=config: new_state(config).model)()
        compiled = jax.jit(eval_step, static_argnums=2).lower(model, batch, config).compile()
        sums.append(compiled(model, batch))
        memory.append(compiled.memory_analysis().temp_size_in_bytes)
    for name in "cross_entropy", "targets":
        np.testing.assert_allclose(sums[1][name], sums[0][name], rtol=1e-5)
    assert memory[1] < memory[0] / 3, memory
