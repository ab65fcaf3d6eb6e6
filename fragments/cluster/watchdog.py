"""A watchdog that ends hanging runs."""

import faulthandler
import os
import queue
import statistics
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Annotated

import jax
from etils import epath

from generator.language import splice
from generator.language.roles import ExitCode, PositiveFloat


class TrainConfig:
    hang_factor: PositiveFloat = 20.0  # ends a run that has no step for this many times its recent median step time
    hang_seconds: Annotated[float, 0, 1e9] = 600.0  # least time before that, to compile, evaluate or save; 0: never


def start_watchdog(directory: epath.Path) -> queue.SimpleQueue:
    """Ends the program if nothing is put into the queue for the seconds last put into it; None stops this."""
    limits = queue.SimpleQueue()
    path = directory / f"stacks-{jax.process_index()}.txt"

    def watch():  # in a thread, as the main one may be waiting for a process that has stopped
        limit = limits.get()
        try:
            while limit:
                limit = limits.get(timeout=limit)
        except queue.Empty:
            print(f"error: no step for {limit:.0f} s: all stacks are in {path}", file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(60, exit=True)  # in case storage fails too
            with tempfile.TemporaryFile("w+") as file:
                faulthandler.dump_traceback(file)
                file.seek(0)
                path.write_text(file.read())
            os._exit(ExitCode.HUNG)

    threading.Thread(target=watch, daemon=True).start()
    return limits


@splice("train.directory", after="lock")
def _(stack, directory):
    watchdog = start_watchdog(directory)
    stack.callback(watchdog.put, None)


def step_limit(config: TrainConfig, seconds: Sequence[float]) -> float:
    """Returns for how many seconds the next step may take, after steps that took `seconds`; 0: for ever."""
    longest = config.hang_factor * statistics.median(seconds or [0])
    return config.hang_seconds and max(config.hang_seconds, longest)


@splice("train.before_batch", before="goodput")
def _(watchdog, config, monitor):
    watchdog.put(step_limit(config, monitor.seconds))
