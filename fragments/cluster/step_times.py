"""Step times by process: the slowest one is named.

Processes wait for each other, so that a step takes all of them as long. What differs is how long each one works before
it waits for its devices: above all, it reads data.
"""

import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from generator.language import splice


def compare_processes(work: list[float]) -> dict[str, float]:
    """Returns which process works longest in its median step, these seconds, and the median of all processes.

    A mean would name the process that compiles first: the others find the program in the cache.
    """
    seconds = multihost_utils.process_allgather(np.float32(np.median(work))).reshape(-1)
    values = {"slowest": seconds.argmax(), "slowest_seconds": seconds.max(), "median_seconds": np.median(seconds)}
    return {f"processes/{name}": value.item() for name, value in values.items()}


@splice("Monitor.parameters")
def _(self):
    self.work = []  # seconds of each step before it waited for the devices, since the last flush


@splice("Monitor.wait")
def _(self):
    self.work.append(time.perf_counter() - self.clock)


@splice("train.flush")
def _(step, monitor):
    monitor.record(step, times := compare_processes(monitor.work))
    monitor.work.clear()
    if jax.process_count() > 1:
        text = "step {}: process {} is the slowest: {:.3f} s a step of its own, the median {:.3f} s"
        print(text.format(step, *times.values()), flush=True)
