"""A check for silent data corruption: some steps run twice.

Source: Dixit et al. 2021, arXiv 2102.11245; Gemini Team 2023, arXiv 2312.11805, section 4.
"""

import itertools

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec

from generator.language import splice
from generator.language.roles import ExitCode, NonNegativeInt, Stop, TrainState, checksums, named_arrays


class TrainConfig:
    check_every: NonNegativeInt = 0  # interval of steps run twice that must agree, with memory for two states; 0: none


def checked_step(
    compiled_step: jax.stages.Compiled, state: TrainState, batch: dict, step: int, config: TrainConfig
) -> tuple[TrainState, dict[str, Array]]:
    """Runs step number `step`, twice if it is one that is checked."""
    if config.check_every and step % config.check_every == 0:
        return step_twice(compiled_step, state, batch)
    return compiled_step(state, batch)


def step_twice(step: jax.stages.Compiled, state: TrainState, batch: dict) -> tuple[TrainState, dict[str, Array]]:
    """Runs a step, first on a copy of the state.

    Raises:
        Stop: the two new states are not bitwise equal.
    """
    copy, _ = step(jax.tree.map(jnp.copy, state), batch)
    state, metrics = step(state, batch)
    first, second = named_arrays(copy), named_arrays(state)
    mesh = state.step.sharding.mesh
    specs = {name: x.sharding.spec for name, x in first.items()}
    # [devices x arrays], one per device, as devices that should hold the same values may differ
    places = {"in_specs": (specs,), "out_specs": PartitionSpec(mesh.axis_names)}
    sums = jax.jit(jax.shard_map(lambda arrays: checksums(arrays)[0], mesh=mesh, check_vma=False, **places))
    differs = multihost_utils.process_allgather(sums(first) != sums(second), tiled=True).reshape(-1, len(specs))
    if differs.any():
        names = ", ".join(itertools.compress(sorted(specs), differs.any(axis=0)))  # as jit sorts keys
        message = f"step {state.step} gave two results, which differ in {names}: find the faulty device"
        raise Stop(message, ExitCode.CORRUPT)
    return state, metrics


@splice("train.step")
def _(compiled_step, state, metrics, batch, step, config):
    state, metrics = checked_step(compiled_step, state, batch, step + 1, config)
