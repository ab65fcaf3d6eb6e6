"""Goodput: the share of a run's time that goes into steps."""

import collections
import time

from jax import Array

from generator.language import point, proceed, splice
from generator.language.roles import Batches


class Goodput:
    """Counts where a run's time goes: `spent` adds the time since its last call to a part."""

    PARTS = "steps", "data", "evaluation", "checkpoints", "compiling", "start-up", "other"

    def __init__(self):
        self.seconds = collections.Counter(dict.fromkeys(self.PARTS, 0.0))
        self.clock = time.perf_counter()

    def spent(self, part: str) -> None:
        before, self.clock = self.clock, time.perf_counter()
        self.seconds[part] += self.clock - before

    def shares(self) -> dict[str, float]:
        total = sum(self.seconds.values())
        return {f"goodput/{part}": seconds / total for part, seconds in self.seconds.items()}

    def summary(self) -> str:
        shares = (f"{name.removeprefix('goodput/')} {share:.1%}" for name, share in self.shares().items())
        return f"goodput: {', '.join(shares)}"


@splice("train.start")
def _():
    goodput = Goodput()


@splice("train.compile")
def _(goodput):
    goodput.spent("start-up")
    proceed()


@splice("train.compiled")
def _(goodput):
    goodput.spent("compiling")


@splice("train.evaluated_first", "train.evaluated")
def _(goodput):
    goodput.spent("evaluation")


@splice("train.before_batch", "train.caught_up")
def _(goodput):
    goodput.spent("steps")


def batch_wait(pending: tuple[int, dict[str, Array]] | None, data: Batches) -> str:
    """Returns the part that the time until the next batch belongs to: while the device is busy, its step."""
    with point("batch_wait.part", data):
        part = "data" if not pending or pending[1]["train/loss"].is_ready() else "steps"
    return part


@splice("train.before_step")
def _(goodput, pending, data):
    goodput.spent(batch_wait(pending, data))


@splice("train.saved", "train.end")
def _(goodput):
    goodput.spent("checkpoints")


@splice("train.flush")
def _(goodput, step, monitor):
    monitor.log_metrics(step, goodput.shares())


@splice("train.flushed")
def _(goodput):
    goodput.spent("other")


@splice("train.end")
def _(goodput):
    print(goodput.summary())
