"""Tasks of an array that are killed at random moments prepare the data that one uninterrupted process does."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distributed.jobs import environment

KILLS = int(os.environ.get("KILLS", "10"))
TASKS = 4


def prepare(texts: Path, out: Path, cache: Path, *flags: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "llama2_cpu.data", "prepare", str(texts), str(out), "--tokenizer=bytes", *flags]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return subprocess.Popen([*command, "--workers=1"], env=environment(cache, 1, 1), **pipes)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def listed(out: Path) -> set[str]:
    return {path.name for path in out.glob("tokens-*")}


def wait_for_news(out: Path, tasks: dict[int, subprocess.Popen]) -> None:
    """Returns when a task has begun or completed a file, or all have ended: starting them takes most of the time."""
    before, deadline = listed(out), time.monotonic() + 60
    while listed(out) == before and time.monotonic() < deadline and any(t.poll() is None for t in tasks.values()):
        time.sleep(0.01)


@pytest.mark.slow
def test_killed_tasks_prepare_what_one_process_does(tmp_path):
    texts, out = tmp_path / "texts", tmp_path / "out"
    texts.mkdir()
    for i in range(3):
        rows = (json.dumps({"text": f"{i} {j} " + "word " * (j % 500)}) for j in range(8000))
        (texts / f"{i}.jsonl").write_text("\n".join(rows))  # 10 MB, about ten files of tokens
    said, _ = (whole := prepare(texts, tmp_path / "whole", tmp_path)).communicate(timeout=600)
    assert whole.returncode == 0, said
    chance, tasks, stages = random.Random(0), dict[int, subprocess.Popen](), set[int]()
    for i in [*range(TASKS), *(chance.randrange(TASKS) for _ in range(KILLS))]:
        if i in tasks:
            wait_for_news(out, tasks)
            time.sleep(chance.uniform(0, 1))
            tasks[i].kill()
            tasks[i].communicate()
            stages.add(len(listed(out)))
        tasks[i] = prepare(texts, out, tmp_path, f"--shard={i}/{TASKS}")
    for i, task in tasks.items():
        said, _ = task.communicate(timeout=600)
        assert task.returncode == 0 and "Traceback" not in said, f"task {i}: {said}"
    assert digests(out) == digests(tmp_path / "whole") and len(stages) > 1
