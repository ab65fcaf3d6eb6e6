"""Rollouts that are sampled before they are due."""

import concurrent.futures
import dataclasses
import json
import shutil
import threading
import time

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import requires, setting
from generator.language.roles import (
    WIDE,
    InputError,
    Rollouts,
    load_checkpoint,
    make_mesh,
    train,
)

requires("rollouts_ahead", "tests/engines")


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "ahead_rewards.py").write_text(REWARDS)
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": "abc" * i}) for i in range(1, 6)))
    monkeypatch.syspath_prepend(tmp_path)
    made = dict(
        data=str(tmp_path / "prompts.jsonl"),
        reward="ahead_rewards:some",
        objective=setting("policy_objective"),
        group_size=2,
    )
    made |= dict(completion_tokens=5, steps=6, checkpoint_dir=str(tmp_path / "run"), batches_per_rollout=2)
    made |= dict(checkpoint_every=1, keep_last=9, learning_rate=1e-2, rollouts_ahead=2)
    made |= {f.name: 0.0 for f in dataclasses.fields(WIDE) if f.name in ("load_balance", "router_z", "mtp_loss_weight")}
    return dataclasses.replace(WIDE, **made)


REWARDS = """
import os
def some(prompt, completion):
    if os.path.exists(os.path.join(os.path.dirname(__file__), "bad")):
        raise KeyError(prompt)
    return sum(map(ord, completion)) % 10
"""


def weights(run) -> list[np.ndarray]:
    return [*map(np.asarray, jax.tree.leaves(load_checkpoint(str(run), make_mesh(1, 1, 1))[1]))]


def mismatches(run) -> list[float]:
    found = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["train/mismatch"] for line in found if "train/mismatch" in line]


def test_the_model_samples_before_rewards_are_known(config, tmp_path, monkeypatch):
    """Three rollouts, which are all, are sampled before a reward is known; a stopped run goes on to the bit."""
    sampled = []
    known = threading.Event()
    sample, rewarded = Rollouts.sample, Rollouts.rewarded

    def counted(self, *x):
        found = sample(self, *x)
        sampled.append(found[0])
        if len(sampled) == 3:
            known.set()
        return found

    monkeypatch.setattr(Rollouts, "sample", counted)
    monkeypatch.setattr(Rollouts, "rewarded", lambda self, *x: known.wait(60) and rewarded(self, *x))
    train(config)
    assert sampled == [0, 1, 2]
    run = tmp_path / "run"
    wanted, told = weights(run), mismatches(run)
    assert told[0] < 1e-5 < 1e-4 < min(told[1:])  # the others are of weights that have been trained since
    for left in 4, 1:
        for step in range(left + 1, 7):
            shutil.rmtree(run / str(step))
        train(config)
        assert all(np.array_equal(x, y) for x, y in zip(weights(run), wanted, strict=True)) and mismatches(run) == told
        records = map(json.loads, (run / "completions.jsonl").read_text().splitlines())
        assert [(x["step"], x["round"]) for x in records] == [(1, 0)] * 2 + [(3, 1)] * 2 + [(5, 2)] * 2


def test_what_is_done_is_saved_if_a_reward_fails(config, tmp_path, monkeypatch):
    sample = Rollouts.sample

    def spoiled(self, number, model):
        if number == 3:
            concurrent.futures.wait(self.pending)
            (tmp_path / "bad").touch()
        return sample(self, number, model)

    monkeypatch.setattr(Rollouts, "sample", spoiled)
    with pytest.raises(InputError, match="KeyError"):  # of the fourth rollout
        train(dataclasses.replace(config, steps=8, checkpoint_every=100))
    assert (tmp_path / "run/6").is_dir()
    (tmp_path / "bad").unlink()
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    train(dataclasses.replace(config, steps=8))
    assert (tmp_path / "run/8").is_dir()


def test_evaluation_has_the_processes_of_rewards_to_itself(config, monkeypatch):
    busy, met = [], []
    rewarded, evaluate = Rollouts.rewarded, Rollouts.evaluate

    def slow(self, *x):
        busy.append(1)
        time.sleep(0.5)
        found = rewarded(self, *x)
        busy.pop()
        return found

    def counted(self, *x):
        met.append(len(busy))
        return evaluate(self, *x)

    monkeypatch.setattr(Rollouts, "rewarded", slow)
    monkeypatch.setattr(Rollouts, "evaluate", counted)
    train(dataclasses.replace(config, eval_data=config.data, eval_every=1, steps=3, batches_per_rollout=1))
    assert met and not any(met)


def test_a_stopped_run_does_not_wait_for_slow_rewards(config, monkeypatch):
    """The first of three rollouts is complete; the others are sampled again."""
    data = Rollouts(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))
    data.patience = 0.1
    ended = threading.Event()
    for number in range(3):
        data.pending.append(data.thread.submit(lambda number=number: (not number or ended.wait(60)) and ([], {})))
    state = data.get_state()[0]
    ended.set()
    assert state["round"] == 1 and len(state["pending"]) == 1


def test_a_run_of_a_package_without_the_part_goes_on(config):
    data = Rollouts(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))
    states = data.get_state()
    assert all(state.pop("pending") == [] for state in states.values())
    data.set_state(states, 1)
    assert not data.pending
