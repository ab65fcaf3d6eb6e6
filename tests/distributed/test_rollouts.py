"""Rewards in two processes: each samples its own rows, and both train as one process does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from families.weaving import LIBRARY, write
from selected import mostly_slow

from distributed.jobs import finish, start
from distributed.test_training import IMPORT, RUN, SIZES, flags, records
from generator.weaver import weave

REWARD = """
import os
def some(prompt, completion, bonus):
    if os.environ.get("JAX_PROCESS_ID") == bonus:
        raise KeyError(bonus)
    return sum(map(ord, completion)) % 10
"""
TOLD = (
    "train/loss",
    "train/value_loss",
    "train/mismatch",
    "train/kl",
    "rollout/reward",
    "rollout/tokens",
    "eval/reward",
    "eval/tokens",
    *(f"{kind}/reward/{source}" for kind in ("rollout", "eval") for source in ("prompts", "others")),
)


def train(run: Path, cache: Path, *arguments: str, **options):
    settings = flags(**RUN | dict(batch_size=8), tokenizer="bytes", group_size=2, completion_tokens=6)
    settings += flags(checkpoint_dir=run, reward="rewarding:some", learning_rate=0.01)
    settings += flags(mesh_data=2, mesh_fsdp=2)
    return start(["-m", "llama2_cpu.train", *settings, *arguments], cache, **options)


def write_prompts(folder: Path, name: str, count: int, lost: str) -> Path:
    """Writes prompts, for which the process of this number has no reward."""
    rows = [{"prompt": name[: i % 5 + 1], "bonus": lost} for i in range(count)]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / f"{name}.jsonl"


@pytest.mark.parametrize("objective", mostly_slow(["grpo", "ppo"], "ppo"))
def test_two_processes_sample_and_train_as_one(objective, tmp_path, cache, monkeypatch):
    prompts, others = write_prompts(tmp_path, "prompts", 7, "none"), write_prompts(tmp_path, "others", 5, "none")
    held_out = write_prompts(tmp_path, "held_out", 3, "none")  # of which one process has none
    data, eval_data, evaluated = prompts, held_out, 3
    if objective == "ppo":
        write(weave("llama2", "cpu", LIBRARY, parts=("critic", "environments", "rollout_processes")), tmp_path)
        monkeypatch.chdir(tmp_path)  # where Python looks first
        data, eval_data, evaluated = f"2:{prompts},1:{others}", f"1:{held_out},1:{others}", 4
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "rewarding.py").write_text(REWARD)
    importing = f"{IMPORT}import_hf(f'{{sys.argv[1]}}/hf', f'{{sys.argv[1]}}/run-1')\n"
    finish(start(["-c", importing, str(tmp_path), repr(SIZES)], cache, 1, 1))
    shutil.copytree(tmp_path / "run-1", tmp_path / "run-2")
    more = flags(data=data, eval_data=eval_data, eval_every=2, steps=4)
    more += flags(objective=objective, kl_coefficient=0.1, batches_per_rollout=2, checkpoint_every=3, keep_last=3)
    found = {}
    for processes in 1, 2:
        run = tmp_path / f"run-{processes}"
        finish(train(run, cache, *more, processes=processes, devices=4 // processes))
        lines = [{name: line[name] for name in TOLD if name in line} for line in records(run)]
        found[processes] = [line for line in lines if line]
    assert len(found[2]) == 4 + evaluated * 3 and max(line.get("train/mismatch", 0) for line in found[2]) > 1e-5
    for one, two in zip(found[1], found[2], strict=True):
        assert one.keys() == two.keys()
        np.testing.assert_allclose([*two.values()], [*one.values()], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_process_without_rewards_ends_both(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "rewarding.py").write_text(REWARD)
    more = flags(objective="grpo", data=write_prompts(tmp_path, "prompts", 8, "1"), steps=2)
    first, second = finish(train(tmp_path / "run", cache, *more), 2)
    assert "fails in another process" in first and "KeyError('1') in" in second
    mesh = flags(mesh_data=1, mesh_fsdp=1, mesh_tensor=4)
    refused, _ = finish(train(tmp_path / "new", cache, *more, *mesh), 2)
    assert "processes share sequences, and each is to sample its own: let only" in refused
