"""A repeated step finds a device that computes wrongly."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    SMALL,
    Stop,
    TrainState,
    abstract,
    compile_step,
    create_state,
    make_mesh,
    new_state,
    random_batch,
    step_twice,
)

requires("check_step")


def test_a_step_done_twice_is_the_step_and_a_flipped_bit_is_found():
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        batch = jax.device_put(random_batch(SMALL), jax.NamedSharding(mesh, jax.P()))
        step = compile_step(abstract(lambda: new_state(SMALL), mesh), batch, SMALL)
        state = create_state(SMALL, mesh)
        once, _ = step(jax.tree.map(jnp.copy, state), batch)
        twice, metrics = step_twice(step, jax.tree.map(jnp.copy, state), batch)
        assert jax.tree.all(jax.tree.map(np.array_equal, once, twice)) and math.isfinite(metrics["train/loss"])

        def faulty(calls: list, state: TrainState, batch: dict) -> tuple[TrainState, dict]:
            """Flips one bit in the result of the second step."""
            calls.append(state)
            state, metrics = step(state, batch)
            if len(calls) == 2:
                leaves, structure = jax.tree.flatten(state.model)
                bits = jax.lax.bitcast_convert_type(leaves[0], jnp.uint32)
                flipped = bits ^ (jnp.arange(bits.size).reshape(bits.shape) == 0)
                leaves[0] = jax.lax.bitcast_convert_type(flipped, jnp.float32)
                state = dataclasses.replace(state, model=jax.tree.unflatten(structure, leaves))
            return state, metrics

        with pytest.raises(Stop, match=r"^step 1 gave two results, which differ in model\.[\w.]+: find"):
            step_twice(lambda *x, calls=[]: faulty(calls, *x), state, batch)
