"""Damaged checkpoints: all processes read the one before, and retry when storage fails."""

import sys
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from generator.language import proceed, requires, splice
from generator.language.roles import (
    WAITS,
    Damage,
    InputError,
    agree,
    classify_error,
    keep_tokenizer,
    on_all_processes,
)

requires("agreement")


def put_aside(directory: epath.Path, steps: list[int]) -> None:
    """Renames checkpoints, so that their steps can be saved again."""
    for step in steps if jax.process_index() == 0 else []:
        (directory / str(step)).rename(directory / f"damaged-{step}-{time.time_ns()}")


def impossible_steps(directory: epath.Path, steps: set[int]) -> list[int]:
    """Returns steps that no run has, and warns of them."""
    impossible = [step for step in sorted(steps) if step >= 2**31]
    for step in impossible:
        print(f"warning: checkpoint {directory / str(step)}: no run has as many steps", file=sys.stderr)
    return impossible


@splice("Checkpoints.options")
def _(self):
    # before Orbax takes one for the newest
    on_all_processes(lambda: put_aside(self.directory, impossible_steps(self.directory, self.steps())))


@splice("Checkpoints.tokenizer")
def _(self, config):
    kept = config.tokenizer, self.directory, config.allow_other_data
    on_all_processes(lambda: jax.process_index() == 0 and keep_tokenizer(*kept))


@splice("Checkpoints.write")
def _(self, step, items):
    on_all_processes(lambda: self.manager.save(step, args=ocp.args.Composite(**items)))


@splice("Checkpoints.close")
def _():
    try:
        proceed()
    except Exception as error:
        raise classify_error(error) from None


@splice("Checkpoints.read_part")
def _(self, step, item, arguments, found):
    found = on_all_processes(lambda: self.read(step, item, arguments), WAITS)


@splice("Checkpoints.compare")
def _(sums, again, item):
    if agree(not np.array_equal(sums, again)):
        raise ValueError(f"{item} is not what was saved, by its checksums")


@splice("Checkpoints.steps")
def _(self, steps):
    steps = on_all_processes(self.steps, WAITS)
    steps = steps.difference(impossible_steps(self.directory, steps))
    steps |= {agree(max(steps, default=-1))} - {-1}  # the newest that any process sees


@splice("Checkpoints.newest")
def _(self, steps, targets, data, step, config, place, trees):
    step, config, place, trees, damaged = -1, None, None, None, []
    while trees is None and (step := agree(max(steps.difference(damaged), default=-1))) >= 0:
        try:
            config, place, found = on_all_processes(lambda: self.read_step(step, targets, data), WAITS)
            trees = self.fill(step, found)
        except (Damage, ValueError) as raised:
            how = raised if isinstance(raised, Damage) else f"is damaged: {raised}"
            print(f"warning: checkpoint {self.directory / str(step)} {how}", file=sys.stderr)
            damaged.append(step)
    if trees is None:
        raise InputError(f"{self.directory}: every checkpoint is damaged: restore one, or give another directory")


@splice("Checkpoints.found")
def _(self, damaged):
    if self.config:
        on_all_processes(lambda: put_aside(self.directory, damaged))
        self.manager.reload()


@splice("atomic_directory.remove", optional=True)
def _(half):
    # when a write fails, Orbax's other writes go on for a moment
    on_all_processes(lambda: half.rmtree(missing_ok=True), WAITS)
