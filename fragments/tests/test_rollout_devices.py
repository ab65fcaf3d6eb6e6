"""Rollouts on devices of their own: rewards, losses and weights are those of devices that do both."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest

from generator.language import requires, setting
from generator.language.roles import WIDE, Config, InputError, check_config, train

requires("rollout_devices", "tests/engines")

REWARD = "def some(prompt, completion):\n    return sum(map(ord, completion)) % 10\n"
PROGRAM = """
import json, sys
from {package}.config import Config
from {package}.trainer import train
train(Config(**json.loads(sys.argv[1])))
"""


def run(tmp_path, name, devices, **settings) -> list[dict[str, float]]:
    """Trains on so many devices in a process of its own, and returns the metrics of its steps."""
    folder = tmp_path / name
    made = dataclasses.asdict(WIDE) | settings
    made |= dict(
        data=str(tmp_path / "prompts.jsonl"),
        reward="devices_rewards:some",
        objective=setting("policy_objective"),
        group_size=2,
    )
    made |= dict(completion_tokens=5, checkpoint_dir=str(folder), batches_per_rollout=2, learning_rate=1e-3)
    # of this seed no loss is a difference that rounding changes by more than the tolerance
    made |= dict(checkpoint_every=2, keep_last=9, batch_size=4, steps=6, seed=1)
    made |= {name: 0.0 for name in made if name in ("load_balance", "router_z", "mtp_loss_weight")}
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    place = os.pathsep.join([str(tmp_path), *sys.path])
    program = PROGRAM.format(package=Config.__module__.rpartition(".")[0])
    command = [sys.executable, "-c", program, json.dumps(made)]
    done = subprocess.run(
        command, env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": place}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    names = "train/loss", "train/mismatch", "rollout/reward", "rollout/tokens"
    return [{name: line[name] for name in names if name in line} for line in lines if "train/loss" in line]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "devices_rewards.py").write_text(REWARD)
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": "abc" * i}) for i in range(1, 6)))
    return tmp_path


def test_in_turn_they_give_what_one_device_gives(files):
    """Two that sample share heads; the third one trains."""
    wanted = [pytest.approx(line, rel=1e-4, abs=1e-6) for line in run(files, "one", 1)]
    assert run(files, "three", 3, rollout_devices=2) == wanted


def test_at_once_they_give_what_one_device_gives(files):
    wanted = [pytest.approx(line, rel=1e-4, abs=1e-6) for line in run(files, "one", 1, rollouts_ahead=2)]
    assert run(files, "two", 2, rollout_devices=1, rollouts_ahead=2) == wanted
    shutil.rmtree(files / "two" / "6")
    assert run(files, "two", 2, rollout_devices=1, rollouts_ahead=2) == wanted  # from step 4 on


def test_what_cannot_be_split_is_refused(files):
    settings = dict(
        data=str(files / "prompts.jsonl"),
        reward="devices_rewards:some",
        objective=setting("policy_objective"),
        group_size=2,
    )
    with pytest.raises(InputError, match="one at least must train"):
        train(dataclasses.replace(WIDE, rollout_devices=64, **settings))
    with pytest.raises(InputError, match="--rollout-devices: --objective next_token samples nothing: give 0"):
        check_config(dataclasses.replace(WIDE, rollout_devices=1))
