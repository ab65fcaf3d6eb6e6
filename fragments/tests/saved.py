"""What tests save to a directory and restore from it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from generator.language.roles import (
    SMALL,
    Checkpoints,
    TrainState,
    abstract,
    checkpoint_items,
    create_state,
    make_mesh,
    new_state,
)


class Numbers:
    """Stands for the batches: 0, 1, 2, ..."""

    def __init__(self, start: int = 0):
        self.next = start

    def get_state(self) -> dict[str, int]:
        return {"next": self.next}

    def set_state(self, state: dict[str, int], step: int) -> None:
        assert state == {"next": step}, "save_state gave both"
        self.next = step


def save_state(checkpoints: Checkpoints, step: int, state: TrainState) -> None:
    data = Numbers(step)
    state = dataclasses.replace(state, step=state.step + step)
    checkpoints.save(step, checkpoint_items(state), data)
    checkpoints.manager.wait_until_finished()


def restore_state(directory: Path, config=SMALL):
    """Returns step, state and the next number of the data; None without a checkpoint."""
    data = Numbers()
    target = checkpoint_items(abstract(lambda: new_state(config), make_mesh(1, 1, 1)))
    checkpoints = Checkpoints(str(directory), config)
    found = checkpoints.restore(lambda _: target, data)
    checkpoints.open().close()
    return found and (found[0], dataclasses.replace(found[2]["training"], model=found[2]["model"]), data.next)


def raising(error: Exception):
    """Returns a function that raises what Orbax raises for an error."""

    def fail(*_):
        raise Exception("in an array") from error

    return fail


def same(a, b) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Checks that names are the same, and under each the dtype, shape and bits."""
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for name in ours:
        assert ours[name].dtype == theirs[name].dtype, name
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def with_nan(state: TrainState) -> TrainState:
    return dataclasses.replace(state, model=jax.tree.map(lambda x: x.at[(0,) * x.ndim].set(jnp.nan), state.model))


def save_two(directory: Path) -> Path:
    """Saves one state as steps 3 and 7; returns the directory."""
    checkpoints = Checkpoints(str(directory), SMALL).open()
    state = create_state(SMALL, make_mesh(1, 1, 1))
    for step in 3, 7:
        save_state(checkpoints, step, state)
    checkpoints.close()
    return directory


def read_metrics(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
