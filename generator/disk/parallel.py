"""Runs jobs in processes, which end with the command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from generator.errors import LoomError


def in_parallel(job: Callable, arguments: Sequence[tuple], heavy: Sequence[bool]) -> Iterable:
    """Yields the results of a job, in the order of the arguments; a mistake in one is its result, a LoomError.

    Args:
        job: a function at the top of a module.
        heavy: which of the jobs take long; processes are started for two or more.
    """
    workers = min(sum(heavy), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if workers < 2:
        yield from (_attempt(job, values) for values in arguments)
        return
    # late: they take 30 ms, and most commands find nothing to do
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    with ProcessPoolExecutor(workers, initializer=_end_with_parent) as pool:
        slow = [values for values, long in zip(arguments, heavy, strict=True) if long]
        results = pool.map(_attempt, repeat(job), slow)
        try:
            for values, long in zip(arguments, heavy, strict=True):
                yield next(results) if long else _attempt(job, values)
        except BrokenProcessPool:
            remedy = "The machine may be short of memory; run the command again."
            raise LoomError("a process that weaves was killed", remedy=remedy) from None


def _attempt(job: Callable, values: tuple) -> object:
    try:
        return job(*values)
    except LoomError as error:
        return error
    except OSError as error:  # a file that may not be read
        return LoomError(error.strerror or str(error), error.filename and str(error.filename))


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone.

    It waits for jobs on a pipe that it could write to itself, so it would wait for ever.
    """
    from multiprocessing import parent_process
    from threading import Thread

    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
