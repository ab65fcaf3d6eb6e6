"""A job of two processes of which one stops: the watchdog ends the other, and the job goes on when it is started again."""

from __future__ import annotations

import email
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compiling import FAST
from whole import whole_packages

pytest.importorskip("jax")
PROGRAM = """
import sys, jax
jax.distributed.initialize(sys.argv.pop(1), num_processes=2, process_id=int(sys.argv.pop(1)))
from llama2_cpu.train import main
main()
"""
SIZES = dict(width=32, layers=2, heads=2, kv_heads=2, head_size=16, mlp_width=64, sequence_length=32, batch_size=4)


def start_job(directory: Path, steps: int, hang_seconds: int) -> list[subprocess.Popen[str]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    settings = SIZES | dict(mesh_fsdp=2, checkpoint_every=5, eval_every=10_000, eval_batches=1)
    settings |= dict(data=Path(email.__file__).parent / "*.py", checkpoint_dir=directory)
    settings |= dict(steps=steps, hang_seconds=hang_seconds)
    flags = [x for name, value in settings.items() for x in ("--" + name.replace("_", "-"), str(value))]
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FAST}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(directory.parent / "cache")}
    return [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(process), *flags],
            cwd=whole_packages(),
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]


def steps_of(directory: Path) -> list[int]:
    path = directory / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("\n") and "train/loss" in line]


def test_a_stopped_process_ends_the_job_which_goes_on_when_restarted(tmp_path):
    directory = tmp_path / "run"
    first, second = job = start_job(directory, steps=1_000_000, hang_seconds=6)
    try:
        while not (directory / "10").exists():
            assert first.poll() is None and second.poll() is None, [process.communicate() for process in job]
            time.sleep(0.05)
        second.send_signal(signal.SIGSTOP)
        _, errors = first.communicate(timeout=60)
        assert first.returncode == 76, errors
        assert f"error: no step for 6 s: all stacks are in {directory}/stacks-0.txt\n" in errors
        assert "in train\n" in (directory / "stacks-0.txt").read_text()
        reached = steps_of(directory)[-1]

        second.send_signal(signal.SIGCONT)
        second.communicate(timeout=60)
        assert second.returncode != 0
    finally:
        for process in job:
            process.kill()

    first, second = start_job(directory, steps=reached + 5, hang_seconds=600)
    (output, errors), (_, others) = first.communicate(timeout=120), second.communicate(timeout=120)
    assert first.returncode == second.returncode == 0, errors + others
    assert "continues after step" in output
    assert steps_of(directory) == list(range(1, reached + 6))
