"""Where the batches of an objective come from: documents, or what the model samples."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import ClassVar

import jax
import numpy as np
from etils import epath
from jax.sharding import NamedSharding

from generator.language import point, proceed, requires, setting, splice
from generator.language.roles import (
    Batches,
    Checkpoints,
    Config,
    InputError,
    Rollouts,
    TrainState,
    checkpoint_items,
    eval_step,
    held_out_batches,
    open_reference,
    with_matrices_in,
)

requires("rollouts", "objectives")


class Texts(Batches):
    """Batches of documents, of objectives that sample nothing."""

    metrics: ClassVar[dict[str, float]] = {}  # of what the model sampled

    def follow(self, policy: Callable, open_reference: Callable, folder: epath.Path) -> None:
        pass

    def held_out(self) -> list[dict[str, np.ndarray]]:
        return held_out_batches(self.config, self.rows)

    def evaluation(self) -> Callable:
        return jax.jit(functools.partial(eval_step, config=self.config))


@contextlib.contextmanager
def saving(checkpoints: Checkpoints, step: int, state: TrainState, data: Batches) -> Iterator[None]:
    """Saves what is done if a document cannot be read, or a reward or a teacher fails."""
    place = data.get_state() if isinstance(data, Texts) else None
    try:
        yield
    except InputError:
        if place:
            data.set_state(place, step)  # a batch that is not full has taken sequences since
        if step not in (0, checkpoints.manager.latest_step()):
            checkpoints.save(step, checkpoint_items(state), data)
        raise


SOURCES = {setting("policy_objective"): Rollouts}  # by objective; the others have Texts


def open_data(config: Config, sharding: NamedSharding) -> tuple[Batches, list[dict[str, np.ndarray]]]:
    """Returns the batches of an objective, and the held-out ones."""
    source = SOURCES.get(config.objective, Texts)
    with point("open_data.open", source, config, sharding):
        data = source(config, sharding)
        held_out = data.held_out()
    return data, held_out


@splice("train.data")
def _(config, batches, data, held_out):
    data, held_out = open_data(config, batches["tokens"].sharding)


@splice("train.eval_step")
def _(compiled_eval_step, data):
    compiled_eval_step = data.evaluation()


@splice("train.compiled", after="goodput")
def _(config, state, data, monitor, checkpoints, mesh):
    reference = functools.partial(open_reference, config, checkpoints, mesh)
    data.follow(lambda: with_matrices_in(config.dtype, state.model), reference, monitor.folder)


@splice("train.batch")
def _(checkpoints, step, state, data):
    with point("train.unrecorded", state):
        saved = state
    with saving(checkpoints, step, saved, data):
        proceed()


@splice("batch_wait.part", optional=True)
def _(data, part):
    if data.metrics:  # of completions that were sampled for this batch
        part = "sampling"
    else:
        proceed()


@splice("train.evaluate")
def _(checkpoints, step, state, data):
    with saving(checkpoints, step, state, data):
        proceed()


@splice("evaluate_held_out.mean", after="objectives", before="preemption")
def _(step, sums):
    if any(x["targets"] for x in sums):
        proceed()
    else:
        print(f"step {step}: no completion of held-out data has a reward", flush=True)


@splice("train.after_step")
def _(metrics, data):
    metrics |= data.metrics
