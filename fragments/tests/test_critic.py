"""PPO: a critic that learns what rewards to expect, resumed runs, exports."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from generator.language import requires, setting
from generator.language.roles import (
    WIDE,
    Checkpoints,
    InputError,
    load_checkpoint,
    load_hf,
    make_mesh,
    named_arrays,
    save_hf,
    train,
    wide_model,
)

requires("critic", "tests/engines")

REWARDS = """
def some(prompt, completion):
    return sum(map(ord, completion)) % 10
def same(prompt, completion):
    return 3.0
def none(prompt, completion):
    return None
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    (tmp_path / "critic_rewards.py").write_text(REWARDS)
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": "abc"[: i % 3 + 1]}) for i in range(5)))
    monkeypatch.syspath_prepend(tmp_path)
    made = dict(data=str(tmp_path / "prompts.jsonl"), objective=setting("policy_objective"), group_size=1)
    made |= {name: 0.0 for name in ("load_balance", "router_z", "mtp_loss_weight") if hasattr(WIDE, name)}
    return made | dict(completion_tokens=5, batches_per_rollout=2, checkpoint_dir=str(tmp_path / "run"))


def records(run) -> list[dict]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "train/loss" in line]


def newest(run) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in named_arrays(load_checkpoint(str(run), make_mesh(1, 1, 1))[1]).items()}


def test_a_stopped_run_goes_on_to_the_bit(settings, tmp_path):
    """From the middle of a rollout, whose second batch has its values from before the first one's update."""
    more = dict(reward="critic_rewards:some", steps=4, checkpoint_every=1, keep_last=2, learning_rate=1e-2)
    config = dataclasses.replace(WIDE, **settings, **more, kl_coefficient=0.1)
    run = tmp_path / "run"
    imported = Checkpoints(run, config).open()
    imported.save(0, {"model": wide_model()})
    imported.close()
    train(config)
    weights, lines = newest(run), records(run)
    assert np.any(weights["value"]) and all(line["train/value_loss"] > 0 for line in lines)
    shutil.rmtree(run / "4")
    train(config)
    again = newest(run)
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
    names = "train/loss", "train/value_loss", "train/kl"
    assert [[x[name] for name in names] for x in records(run)] == [[x[name] for name in names] for x in lines]


def test_the_critic_learns_what_to_expect(settings, tmp_path):
    """Of a reward that is always 3: its loss, half the squared error, falls from about 4.5."""
    more = dict(reward="critic_rewards:same", steps=60, learning_rate=1e-2, value_coefficient=1.0, value_clip=10.0)
    train(dataclasses.replace(WIDE, **settings, **more))
    losses = [line["train/value_loss"] for line in records(tmp_path / "run")]
    assert losses[0] == pytest.approx(4.5, rel=0.3) and np.mean(losses[-4:]) < 0.05 * losses[0]


def test_completions_without_a_reward_teach_nothing(settings, tmp_path):
    train(dataclasses.replace(WIDE, **settings, reward="critic_rewards:none", steps=2))
    assert [line["train/gradient_norm"] for line in records(tmp_path / "run")] == [0, 0]
    with pytest.raises(InputError, match=r"--objective .*: needs --reward MODULE:FUNCTION, also to go on"):
        train(dataclasses.replace(WIDE, **settings, steps=3))


def test_advantages_of_tokens_need_ratios_of_tokens(settings):
    config = dataclasses.replace(WIDE, **settings, ratio_per="sequence", steps=1)
    with pytest.raises(InputError, match=r"^--ratio-per sequence: a critic has an advantage for each token"):
        train(dataclasses.replace(config, reward="critic_rewards:some"))


def test_an_export_is_one_of_the_policy(tmp_path):
    model = jax.tree.map(lambda x: x, wide_model())
    model.value.set_value(model.value.get_value() + 1)
    save_hf(WIDE, model, tmp_path / "hf")
    again = load_hf(tmp_path / "hf")[1]
    there, ours = named_arrays(again), named_arrays(model)
    assert there.keys() == ours.keys() and not np.any(there["value"])
    assert all(np.array_equal(x, ours[name]) for name, x in there.items() if name != "value")
