"""A job whose processes are killed at random moments goes on by itself, and ends as one that nothing stops."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from selected import mostly_slow

from distributed import test_kills
from distributed.jobs import finish
from distributed.test_kills import losses, reached, train

data = test_kills.data  # a fixture


def child(process) -> int:
    """The process that trains, which its parent starts again."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() or "0")


def wait(job, done: Callable[[], object]) -> float:
    begin = time.monotonic()
    while not done():
        assert all(process.poll() is None for process in job) and time.monotonic() < begin + 240
        time.sleep(0.01)
    return time.monotonic() - begin


@pytest.mark.parametrize(("kills", "shape"), mostly_slow([(1, (2, 2)), (20, (4, 1))], (1, (2, 2))))
def test_a_killed_process_starts_again_and_all_go_on(tmp_path, cache, data, kills, shape):
    """Shapes are processes and devices of each. The last loss on held-out data is that of the last parameters."""
    directory, chance, seconds = tmp_path / "killed", random.Random(kills), []
    settings = dict(steps=15 * kills, eval_every=10)
    finish(train(tmp_path / "whole", cache, data, shape, **settings))
    job = train(directory, cache, data, shape, **settings, restarts=3 * kills)
    with ThreadPoolExecutor(len(job)) as pool:
        outputs = [pool.submit(process.communicate) for process in job]
        for kill in range(kills):
            if kill % 5 == 4:
                time.sleep(chance.uniform(0, 6))  # while the job still recovers
            else:
                moment = reached(directory) + chance.randint(1, 5)
                wait(job, lambda moment=moment: reached(directory) >= moment)
            victim, last = job[chance.randrange(len(job))], reached(directory)
            wait(job, lambda victim=victim: child(victim))
            os.kill(child(victim), signal.SIGKILL)
            if kill % 5 != 3:
                seconds.append(wait(job, lambda last=last: reached(directory) > last))
        texts = [output.result()[0] for output in outputs]
    assert [process.returncode for process in job] == [0] * len(job), texts
    print(f"{kills} kills: further after {min(seconds):.1f} to {max(seconds):.1f} s,", end=" ")
    print(f"median {statistics.median(seconds):.1f};", "restarts", [text.count("starts again") for text in texts])
    assert losses(directory) == losses(tmp_path / "whole")
