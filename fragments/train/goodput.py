"""Goodput: the share of a run's time that goes into steps."""

import collections
import time

from generator.language import point, proceed, splice


class Goodput:
    """Counts where a run's time goes: `spent` adds the time since its last call to the part it names."""

    PARTS = "steps", "data", "evaluation", "checkpoints", "compiling", "start-up", "other"

    def __init__(self):
        self.seconds = collections.Counter(dict.fromkeys(self.PARTS, 0.0))
        self.clock = time.perf_counter()

    def spent(self, part: str) -> None:
        before, self.clock = self.clock, time.perf_counter()
        self.seconds[part] += self.clock - before

    def shares(self) -> dict[str, float]:
        return {part: seconds / sum(self.seconds.values()) for part, seconds in self.seconds.items()}


@splice("train.start")
def _():
    goodput = Goodput()


@splice("train.compile", before="preemption")
def _(goodput):
    goodput.spent("start-up")
    proceed()


@splice("train.compiled")
def _(goodput):
    goodput.spent("compiling")


@splice("train.evaluation")
def _(goodput):
    proceed()
    goodput.spent("evaluation")


@splice("train.before_batch", "train.caught_up")
def _(goodput):
    goodput.spent("steps")


@splice("train.before_step", before="profile")
def _(goodput, pending, data):
    with point("goodput.data", goodput, data):
        goodput.spent("data" if not pending or pending[1]["train/loss"].is_ready() else "steps")  # idle or busy


@splice("train.saved", "train.end")
def _(goodput):
    goodput.spent("checkpoints")


@splice("train.flush")
def _(goodput, step, monitor):
    monitor.record(step, {f"goodput/{part}": share for part, share in goodput.shares().items()})


@splice("train.flushed")
def _(goodput):
    goodput.spent("other")


@splice("train.end")
def _(goodput):
    print("goodput:", ", ".join(f"{part} {share:.1%}" for part, share in goodput.shares().items()))
