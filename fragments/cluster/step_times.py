"""Step times by process: the slowest one is named.

Processes wait for each other, so that a step takes all of them as long. What differs is how long each one takes until
it has its batch: even to start a step may be to wait for the others.
"""

import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from generator.language import proceed, splice


def compare_processes(step: int, work: list[float]) -> dict[str, float]:
    """Returns which process takes longest for its batch in its median step, these seconds, and the median of all.

    Prints them too if there are several.
    """
    seconds = multihost_utils.process_allgather(np.float32(np.median(work))).reshape(-1)
    slowest, longest, median = seconds.argmax().item(), seconds.max().item(), np.median(seconds).item()
    if jax.process_count() > 1:
        times = f"{longest:.3f} s for its batch, the median {median:.3f} s"
        print(f"step {step}: process {slowest} is the slowest: {times}", flush=True)
    return {"processes/slowest": slowest, "processes/slowest_seconds": longest, "processes/median_seconds": median}


@splice("Monitor.parameters")
def _(self):
    self.work = []  # seconds until each step had its batch, since the last flush


@splice("train.batch", after="sources")
def _(monitor):
    proceed()
    monitor.work.append(time.perf_counter() - monitor.clock)


@splice("train.flush")
def _(step, monitor):
    monitor.log_metrics(step, compare_processes(step, monitor.work))
    monitor.work.clear()
