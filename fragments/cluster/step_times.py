"""Step times by process: the slowest one is named.

Processes wait for each other, so that a step takes all of them as long. What differs is how long each one takes until
it has its batch: even to start a step may be to wait for the others.
"""

import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from generator.language import proceed, splice


def compare_processes(work: list[float]) -> dict[str, float]:
    """Returns which process takes longest for its batch in its median step, these seconds, and the median of all."""
    seconds = multihost_utils.process_allgather(np.float32(np.median(work))).reshape(-1)
    values = {"slowest": seconds.argmax(), "slowest_seconds": seconds.max(), "median_seconds": np.median(seconds)}
    return {f"processes/{name}": value.item() for name, value in values.items()}


@splice("Monitor.parameters")
def _(self):
    self.work = []  # seconds until each step had its batch, since the last flush


@splice("train.batch", after="sources")
def _(monitor):
    proceed()
    monitor.work.append(time.perf_counter() - monitor.clock)


@splice("train.flush")
def _(step, monitor):
    monitor.record(step, times := compare_processes(monitor.work))
    monitor.work.clear()
    if jax.process_count() > 1:
        text = "step {}: process {} is the slowest: {:.3f} s for its batch, the median {:.3f} s"
        print(text.format(step, *times.values()), flush=True)
