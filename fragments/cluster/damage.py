"""Damaged checkpoints: all processes read the one before, and retry when storage fails."""

import functools
import sys
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from generator.language import proceed, requires, splice
from generator.language.roles import (
    FAILING,
    WAITS,
    Damage,
    InputError,
    agree,
    classify_error,
    keep_tokenizer,
    on_all_processes,
    reading,
)

requires("agreement")


def put_aside(directory: epath.Path, steps: list[int]) -> None:
    """Renames checkpoints, so that their steps can be saved again."""
    for step in steps if jax.process_index() == 0 else []:
        (directory / str(step)).rename(directory / f"damaged-{step}-{time.time_ns()}")


def impossible_steps(steps: set[int]) -> list[int]:
    """Returns steps that no run has."""
    return [step for step in sorted(steps) if step >= 2**31]


@splice("Checkpoints.options")
def _(self):
    # before Orbax takes one for the newest
    on_all_processes(lambda: put_aside(self.directory, impossible_steps(self.steps())))


@splice("Checkpoints.tokenizer")
def _(self):
    kept = self.config.tokenizer, self.directory, self.config.allow_other_data
    on_all_processes(lambda: jax.process_index() == 0 and keep_tokenizer(*kept))


@splice("Checkpoints.write")
def _(self, step, items):
    if not on_all_processes(lambda: self.manager.save(step, args=ocp.args.Composite(**items))):
        raise InputError(f"step {step} is not saved: {self.directory} has newer ones: give each run its own")


@splice("Checkpoints.close")
def _():
    try:
        proceed()
    except Exception as error:
        raise classify_error(error) from None


@splice("Checkpoints.read_arrays")
def _(self, step, item, tree, arrays, saved_sums):
    read_arrays = reading(self.directory / str(step))(self.read_arrays)
    arrays, saved_sums = on_all_processes(lambda: read_arrays(step, item, tree), WAITS)


@splice("read_lazily.part")
def _(folder, read, name, target, array):
    read_again = reading(folder)(read)
    restored = on_all_processes(lambda: read_again({"arrays": {name: target[name]}}), WAITS)
    array = restored["arrays"][name]


@splice("reading.fails")
def _(reason, fails):
    fails = fails or reason.startswith(FAILING)


@splice("reading.damaged")
def _(folder, reason):
    raise Damage(f"{folder} is damaged: {reason}") from None


@splice("Checkpoints.compare")
def _(sums, saved_sums, item):
    if agree(not np.array_equal(sums, saved_sums)):
        raise ValueError(f"{item} is not what was saved, by its checksums")


@splice("Checkpoints.steps")
def _(self, steps):
    steps = on_all_processes(self.steps, WAITS)
    for impossible in impossible_steps(steps):
        steps = steps - {impossible}
        print(f"warning: checkpoint {self.directory / str(impossible)}: no run has as many steps", file=sys.stderr)
    steps |= {agree(max(steps, default=-1))} - {-1}  # the newest that any process sees


@splice("Checkpoints.newest")
def _(self, steps, targets, data, step, config, place, abstract_trees, trees):
    step = -1
    config, place, trees = None, None, None
    damaged = []
    while trees is None and (step := agree(max(steps.difference(damaged), default=-1))) >= 0:
        try:
            read_step = functools.partial(reading(self.directory / str(step))(self.read_step), step, data)
            config, place = on_all_processes(read_step, WAITS)
            abstract_trees = {item: tree for item, tree in targets(config).items() if step or item == "model"}
            with reading(self.directory / str(step)):
                trees = {item: self.read_tree(step, item, tree) for item, tree in abstract_trees.items()}
        except Damage as damage:
            print(f"warning: checkpoint {damage}", file=sys.stderr)
            damaged.append(step)
    if trees is None:
        others = sorted(on_all_processes(self.steps, WAITS).difference(damaged))
        remedy = f"there are also those of steps {others}" if others else "restore one, or give another directory"
        raise InputError(f"{self.directory}: {'this' if others else 'every'} checkpoint is damaged: {remedy}")


@splice("Checkpoints.found")
def _(self, damaged):
    if self.config:
        on_all_processes(lambda: put_aside(self.directory, damaged))


@splice("atomic_directory.remove")
def _(half):
    # when a write fails, Orbax's other writes go on for a moment
    on_all_processes(lambda: half.rmtree(missing_ok=True), WAITS)
