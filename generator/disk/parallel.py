"""Runs jobs in processes that end with the command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from generator.errors import LoomError


def run_parallel(job: Callable, arguments: Sequence[tuple], heavy: Sequence[bool]) -> Iterable:
    """Yields the results of a job in the order of the arguments; a LoomError that it raises is its result.

    Args:
        job: is a function at module level.
        heavy: marks the slow jobs. Processes are started only for two or more of them.
    """
    workers = min(sum(heavy), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if workers < 2:
        yield from (_run_job(job, values) for values in arguments)
        return
    # imported late: it takes 30 ms, and most commands have no heavy jobs
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # never a fork of this process, which may have threads: those of JAX, if it is a notebook or a test
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload([job.__module__])
    if method == "forkserver":
        _start_forkserver()
    with ProcessPoolExecutor(workers, context, _end_with_command) as pool:
        slow = [values for values, is_slow in zip(arguments, heavy, strict=True) if is_slow]
        results = pool.map(_run_job, repeat(job), slow)
        try:
            for values, is_slow in zip(arguments, heavy, strict=True):
                yield next(results) if is_slow else _run_job(job, values)
        except BrokenProcessPool:
            remedy = "The machine may be short of memory; run the command again."
            raise LoomError("a process that weaves was killed", remedy=remedy) from None


def _start_forkserver() -> None:
    """Starts the parent of the processes, in which Ctrl-C waits until they are ready to end (`_end_with_command`)."""
    import signal
    from multiprocessing import forkserver

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited; here the signal comes a moment later
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _run_job(job: Callable, values: tuple) -> object:
    try:
        return job(*values)
    except LoomError as error:
        return error
    except OSError as error:  # such as an unreadable file
        return LoomError(error.strerror or str(error), error.filename and str(error.filename))


def _end_with_command() -> None:
    """Ends this process on Ctrl-C, and when its parent has ended; it seldom looks for garbage.

    A KeyboardInterrupt would end only its job, and the pool would then run those that wait. Without its parent it would
    wait forever for jobs, on a pipe that it holds open itself.
    """
    import gc
    import signal
    from multiprocessing import parent_process
    from threading import Thread

    gc.set_threshold(200_000)  # syntax trees have many nodes, and no cycles to collect
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
