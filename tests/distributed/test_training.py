"""The command line of training in two processes: how they begin, from what, and how a signal ends them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from distributed.jobs import finish, start

SIZES = dict(width=32, layers=2, heads=4, kv_heads=2, head_size=8, mlp_width=64, context_length=64, vocab_size=260)
RUN = dict(sequence_length=32, batch_size=4, warmup_ratio=0.0, eval_batches=1, dtype="float32")


def flags(**settings) -> list[str]:
    return [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"document {i} " * (1 + i % 9)}) + "\n" for i in range(300)))
    return path


def train(directory: Path, cache: Path, data: Path, *arguments: str, **options):
    settings = flags(**RUN, data=data, checkpoint_dir=directory)
    return start(["-m", "llama2_cpu.train", *settings, *arguments], cache, **options)


def records(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def losses(directory: Path) -> list[float]:
    return [record["train/loss"] for record in records(directory) if "train/loss" in record]


def test_processes_with_other_settings_train_nothing(tmp_path, cache, data):
    sizes = flags(preset="tiny", **SIZES, steps=1)
    for output in finish(train(tmp_path / "run", cache, data, *sizes, last=["--learning-rate", "0.5"]), 2):
        assert "error: the processes of the job differ in their settings: start all of them with the same" in output
    assert not (tmp_path / "run").exists()


# in a folder of its own for each process, as on the disks of two hosts
ELSEWHERE = """
import os, sys
os.chdir(sys.argv.pop(1) + os.environ["JAX_PROCESS_ID"])
from llama2_cpu.train import main
main()
"""


@pytest.mark.parametrize("flag", ["--data", "--eval-data"])
def test_processes_with_other_data_train_nothing(flag, tmp_path, cache, data):
    for index in 0, 1:
        (tmp_path / f"host-{index}").mkdir()
        (tmp_path / f"host-{index}/texts.jsonl").write_text(data.read_text() * (1 + index))
    settings = flags(preset="tiny", **SIZES, **RUN, steps=1, data=data, checkpoint_dir=tmp_path / "run")
    arguments = ["-c", ELSEWHERE, str(tmp_path / "host-"), *settings, flag, "texts.jsonl"]
    for output in finish(start(arguments, cache), 2):
        assert "error: the processes of the job differ in their data: start all of them with the same" in output
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"index"}  # of the lines of files alone


def test_a_signal_to_one_process_ends_both_which_go_on_later(tmp_path, cache, data):
    """As when one host of a job is taken back: the others learn of it, save with it, and a scheduler starts all again."""
    sizes = flags(preset="tiny", **SIZES, checkpoint_every=10_000, eval_every=10_000)
    job = train(tmp_path / "run", cache, data, *sizes, "--steps", "100000")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (tmp_path / "run/metrics.jsonl").exists():
        time.sleep(0.1)
    while time.monotonic() < deadline and len(losses(tmp_path / "run")) < 5:
        time.sleep(0.1)
    job[1].send_signal(signal.SIGTERM)
    output, _ = finish(job, 75)
    step = len(losses(tmp_path / "run"))
    assert f"stopped by a signal after step {step}, which is saved: --checkpoint-dir {tmp_path}/run continues" in output
    assert (tmp_path / f"run/{step}").is_dir()
    output, _ = finish(train(tmp_path / "run", cache, data, *sizes, "--steps", str(step + 2)))
    assert f"continues after step {step} in" in output and len(losses(tmp_path / "run")) == step + 2


SLOW = """
import os, time
from llama2_cpu import data, train
read = data.Batches.__next__
if os.environ["JAX_PROCESS_ID"] == "1":
    data.Batches.__next__ = lambda self: time.sleep(2) or read(self)
train.main()
"""


def test_the_process_that_others_wait_for_is_named(tmp_path, cache, data):
    settings = flags(preset="tiny", **SIZES, **RUN, data=data, checkpoint_dir=tmp_path / "run", steps=4)
    output, _ = finish(start(["-c", SLOW, *settings], cache))
    assert "step 4: process 1 is the slowest: " in output
    record = next(r for r in records(tmp_path / "run") if "processes/slowest" in r)
    assert record["processes/slowest"] == 1
    assert record["processes/slowest_seconds"] > max(0.5, record["processes/median_seconds"])


IMPORT = """
import dataclasses, pathlib, sys, jax
from flax import nnx
from llama2_cpu.checkpoint import import_hf
from llama2_cpu.config import PRESETS
from llama2_cpu.huggingface import save_hf
from llama2_cpu.model import Decoder
config = dataclasses.replace(PRESETS["tiny"], **eval(sys.argv[2]))
save_hf(config, Decoder(config, nnx.Rngs(7)), f"{sys.argv[1]}/hf")
"""


@pytest.mark.slow
def test_imported_weights_are_gone_on_with_by_two_processes(tmp_path, cache, data):
    """Without a preset, which the checkpoint stands for: it is read once all are in the job. As one process does it."""
    finish(start(["-c", IMPORT, str(tmp_path), repr(SIZES)], cache, 1, 1))
    for name in "one", "two":
        finish(start(["-m", "llama2_cpu.checkpoint", "import", f"{tmp_path}/hf", f"{tmp_path}/{name}"], cache, 1, 1))
    arguments = flags(tokenizer="bytes", steps=3, learning_rate=0.01)
    finish(train(tmp_path / "one", cache, data, *arguments, processes=1, devices=4))
    output, _ = finish(train(tmp_path / "two", cache, data, *arguments, "--profile-steps", "2:3"))
    assert "continues after step 0 in" in output and "goodput: steps " in output
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-6)
    assert len(losses(tmp_path / "two")) == 3
    assert len([*tmp_path.glob("two/profile/plugins/profile/*/*.xplane.pb")]) == 1  # of process 0
