"""Delayed scaling: what is kept of each step, over microbatches and checkpoints."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from generator.language import requires, splice
from generator.language.roles import (
    SMALL,
    delayed_product,
    named_arrays,
    product,
    random_batch,
    state_for,
    train_step,
)

requires("delayed_scaling")

CONFIG = dataclasses.replace(SMALL, dtype="bfloat16")


@splice("test_low_precision.plain")
def _(monkeypatch, model):
    monkeypatch.setattr(model, "delayed_product", lambda equation, x, kernel, amaxes: product(equation, x, kernel))


def test_amaxes_are_those_of_the_operands():
    x = jnp.array([[[3.0, -700.0]], [[0.5, 0.0]]], jnp.bfloat16)
    kernel, dy = jnp.array([[0.25], [-0.125]]), jnp.array([[[2.0]], [[-6.0]]], jnp.bfloat16)
    before = jnp.array([[512.0, 8], [1, 2], [4, 0]])
    y, gradients = jax.vjp(lambda *z: delayed_product("BTD,DF->BTF", *z), x, kernel, before)
    dx, _, amaxes = gradients(dy)
    np.testing.assert_array_equal(amaxes, [[700, 512], [0.25, 1], [6, 4]])
    np.testing.assert_array_equal(np.float32(dx), np.float32(jnp.einsum("BTF,DF->BTD", dy, kernel)))
    # scales are as before: 700 is cut off at what they can represent, 2 * 448
    np.testing.assert_allclose(np.float32(y)[:, 0, 0], [3 * 0.25 + 704 / 8, 0.125], rtol=0.01)


def test_microbatches_keep_the_largest_numbers_of_all():
    batch = random_batch(CONFIG)
    step = jax.jit(train_step)
    whole, _ = step(state_for(CONFIG), batch)
    split, _ = step(state_for(dataclasses.replace(CONFIG, accumulation=2)), batch)
    assert whole.amaxes.keys() == split.amaxes.keys()
    for name, amaxes in whole.amaxes.items():
        assert "router" in name or jnp.all(amaxes[..., 0] > 0), name
        np.testing.assert_allclose(split.amaxes[name][..., :2, :], amaxes[..., :2, :], rtol=0.01, err_msg=name)
        # gradients of sums over tokens, not of means over a batch: those of a token are the same in a microbatch
        np.testing.assert_allclose(split.amaxes[name][..., 2, :], amaxes[..., 2, :], rtol=0.1, err_msg=name)


def test_a_step_that_is_not_finite_keeps_them():
    batch, step = random_batch(CONFIG), jax.jit(train_step)
    state, _ = step(state_for(CONFIG), batch)
    after, metrics = step(state, batch | {"weights": batch["weights"] * jnp.inf})
    assert metrics["train/skipped"]
    assert jax.tree.all(jax.tree.map(jnp.array_equal, state.amaxes, after.amaxes))


def test_the_model_and_its_optimizer_know_of_none():
    state = state_for(CONFIG)
    assert not any("amaxes" in name for name in (*named_arrays(state.model), *named_arrays(state.opt_state)))
    assert all(x.shape[-2:] == (3, CONFIG.amax_history) for x in state.amaxes.values())
