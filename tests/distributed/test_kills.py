"""A job whose processes are killed at random moments ends as one that was never killed."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from distributed.jobs import finish, start

KILLS = int(os.environ.get("KILLS", "2"))
STEPS = 40
# 4 devices whatever the number of processes, so that the mesh is the same; 2 x 1 is another mesh
SHAPES = [(2, 2), (1, 4), (2, 1), (4, 1)]  # processes, devices of each
SMALL = dict(width=32, layers=2, heads=4, kv_heads=2, head_size=8, mlp_width=64, sequence_length=32, batch_size=4)


def train(directory: Path, cache: Path, data: Path, shape: tuple[int, int], **settings):
    settings = SMALL | dict(data=data, steps=STEPS, checkpoint_every=4, checkpoint_dir=directory) | settings
    settings |= dict(eval_every=10, eval_batches=2, warmup_ratio=0.0, adam_epsilon=1e-3)
    flags = [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]
    return start(["-m", "llama2_cpu.train", "--preset", "tiny", *flags], cache, *shape)


def losses(directory: Path) -> list[tuple[int, str, float]]:
    path = directory / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(record["step"], name, record[name]) for record in records for name in sorted(record) if "loss" in name]


def reached(directory: Path) -> int:
    return max((step for step, *_ in losses(directory)), default=0) if (directory / "metrics.jsonl").exists() else 0


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    words = random.Random(1).choices(["one", "two", "three", "four", "five", "six"], k=4000)
    texts = [" ".join(words[start : start + 1 + start % 37]) for start in range(0, 4000, 10)]
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return folder / "texts.jsonl"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, cache, data) -> Path:
    """The directory of a run of two processes that nothing stops."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    finish(train(directory, cache, data, (2, 2)))
    assert len(losses(directory)) == STEPS + STEPS // 10
    return directory


def end(job, patience: float) -> None:
    """As a scheduler does once a process of a job has died: the others have some time, and are then killed."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and any(process.poll() is None for process in job):
        time.sleep(0.1)
    for process in job:
        process.kill()
        process.communicate()


@pytest.mark.slow  # test_local_checkpoints kills a job once, too, which goes on from what is shared
@pytest.mark.parametrize("other", [False, True], ids=["the same number", "another number"])
def test_killed_runs_end_as_one_that_was_not(tmp_path, cache, data, uninterrupted, other):
    """KILLS in all, half of them here: before the first step, between saves and while one is written."""
    chance = random.Random(int(other))
    shapes = itertools.cycle([SHAPES[0]] if not other else SHAPES)
    kills, runs = 0, 0
    while kills < (KILLS + 1) // 2:
        directory = tmp_path / f"run-{runs}"
        runs += 1
        finished = False
        while not finished:
            job = train(directory, cache, data, next(shapes))
            begin = reached(directory)
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0, 6))
            else:
                moment, delay = chance.randint(begin, STEPS), chance.uniform(0, 0.2)
                while all(process.poll() is None for process in job) and not begin < reached(directory) >= moment:
                    time.sleep(0.01)
                time.sleep(delay)
            alive = [process for process in job if process.poll() is None]
            if kills < (KILLS + 1) // 2 and len(alive) == len(job):
                alive[chance.randrange(len(alive))].send_signal(signal.SIGKILL)
                end(job, patience=1)
                kills += 1
            else:
                finish(job)
                finished = True
        names, found = zip(*[(entry[:2], entry[2]) for entry in losses(directory)], strict=True)
        wanted_names, wanted = zip(*[(entry[:2], entry[2]) for entry in losses(uninterrupted)], strict=True)
        assert names == wanted_names
        np.testing.assert_allclose(found, wanted, rtol=1e-6 if other else 0)
    print(f"{kills} kills in {runs} runs")
