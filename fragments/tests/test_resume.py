"""Runs that are stopped or killed, against one that never was."""

import email
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from generator.language import point, requires
from generator.language.roles import PACKAGE, PRESETS, SMALL

requires("train/command")

TEXT = Path(email.__file__).parent / "*.py"


SIZES = {name: size for name, size in vars(SMALL).items() if size != getattr(PRESETS["tiny"], name)}


SETTINGS = SIZES | dict(batch_size=2, steps=60, checkpoint_every=12, eval_every=18, eval_batches=2, data=TEXT)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Returns a compilation cache, so that not every process compiles the step."""
    return str(tmp_path_factory.mktemp("cache"))


def start(directory: Path, cache: str, **settings) -> subprocess.Popen:
    flags = [x for k, v in (SETTINGS | settings).items() for x in (f"--{k.replace('_', '-')}", str(v))]
    return subprocess.Popen(
        [sys.executable, "-m", f"{PACKAGE.name}.train", "--preset", "tiny", "--checkpoint-dir", str(directory), *flags],
        cwd=PACKAGE.parent,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen, code: int = 0) -> str:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == code, out + errors
    assert "Traceback" not in errors
    return out + errors


def wait_for(process: subprocess.Popen, happened) -> None:
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def metrics(directory: Path) -> list[dict]:
    path = directory / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def losses(directory: Path) -> list[tuple]:
    return [(r["step"], name, r[name]) for r in metrics(directory) for name in ("train/loss", "eval/loss") if name in r]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache):
    """Makes a run that is never stopped."""
    directory = tmp_path_factory.mktemp("whole")
    directory.joinpath("output.txt").write_text(finish(start(directory, cache)))
    return directory


def test_a_whole_run_leaves_what_is_promised(whole):
    assert [r["step"] for r in metrics(whole) if "train/loss" in r] == list(range(1, 61))
    assert [r["step"] for r in metrics(whole) if "eval/loss" in r] == [18, 36, 54, 60]
    names = {name for r in metrics(whole) for name in r} - {"step", "time"}
    assert {"train/learning_rate", "train/gradient_norm", "train/tokens_per_second"} < names
    assert sorted(int(p.name) for p in whole.iterdir() if p.name.isdigit()) == [36, 48, 60]
    output = (whole / "output.txt").read_text()
    for text in ("step 60/60", "tokens/s", "% full", "% causal", "ETA"):
        assert text in output


def test_a_killed_run_goes_on_to_the_bit(whole, tmp_path, cache):
    process = start(tmp_path, cache)  # killed some steps after a checkpoint
    wait_for(process, lambda: (tmp_path / "12").is_dir() and metrics(tmp_path)[-1]["step"] >= 15)
    process.kill()
    finish(process, -signal.SIGKILL)
    assert metrics(tmp_path)[-1]["step"] < 60

    process = start(tmp_path, cache)  # killed while it saves
    wait_for(process, lambda: any("tmp" in p.name for p in tmp_path.iterdir() if p.name[0].isdigit()))
    process.kill()
    finish(process, -signal.SIGKILL)

    point("test_resume.stopped", whole, tmp_path, cache)
    output = finish(start(tmp_path, cache))
    assert "continues after step" in output
    assert not [p for p in tmp_path.iterdir() if "orbax-checkpoint-tmp" in p.name]
    assert losses(tmp_path) == losses(whole)

    output = finish(start(tmp_path, cache))
    assert "all 60 steps are done" in output
    output = finish(start(tmp_path, cache, width=2 * SMALL.width), code=2)
    assert "is of another model" in output and f"width {SMALL.width} -> {2 * SMALL.width}" in output
