"""Several sources of prompts in a run: their shares, rewards and metrics."""

import dataclasses
import itertools
import json
from collections import Counter
from types import SimpleNamespace

import pytest
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import requires, setting
from generator.language.roles import (
    WIDE,
    CompletionRecords,
    InputError,
    Request,
    Rollouts,
    SamplingParams,
    environment_names,
    log_environments,
    make_mesh,
    train,
)

requires("environments", "tests/engines")

SIZES = {"easy": 6, "hard": 3}
REWARDS = """
def one(prompt, completion):
    return 1.0
def length(prompt, completion, answer):
    return float(answer)
def any_of_both(prompt, completion, **row):
    return 1.0 if "answer" in row else 0.0
def none(prompt, completion, answer):
    return None
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Three prompts of `easy` for each of `hard`."""
    (tmp_path / "environment_rewards.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(tmp_path)
    rows = {"easy": {}, "hard": {"answer": 4}}
    for (name, size), end in itertools.product(SIZES.items(), ("jsonl", "held_out.jsonl")):
        lines = [json.dumps({"prompt": f"{name[0]}{i}"} | rows[name]) for i in range(size)]
        (tmp_path / f"{name}.{end}").write_text("\n".join(lines))
    easy, hard = tmp_path / "easy.jsonl", tmp_path / "hard.jsonl"
    made = dict(data=f"3:{easy},1:{hard}", objective=setting("policy_objective"), group_size=2, batch_size=8)
    made |= {name: 0.0 for name in ("load_balance", "router_z", "mtp_loss_weight") if hasattr(WIDE, name)}
    return made | dict(completion_tokens=3, checkpoint_dir=str(tmp_path / "run"), steps=2)


def rollouts(**settings) -> Rollouts:
    return Rollouts(dataclasses.replace(WIDE, **settings), NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))


def test_prompts_come_by_share_and_each_source_has_its_epochs(settings):
    prompts = rollouts(**settings, reward="environment_rewards:any_of_both").choose(0, 24)
    assert all(Counter(x.environment for x in prompts[i : i + 4]) == {"easy": 3, "hard": 1} for i in range(0, 24, 4))
    for name, size in SIZES.items():
        places = [prompt.source for prompt in prompts if prompt.environment == name]
        epochs = [places[start : start + size] for start in range(0, len(places), size)]
        assert len(epochs) > 1 and all(len({*epoch}) == size for epoch in epochs)


def test_each_source_has_a_reward_and_metrics_of_its_own(settings, tmp_path):
    held_out = ",".join(f"1:{tmp_path / name}.held_out.jsonl" for name in SIZES)
    more = dict(reward="environment_rewards:one,environment_rewards:length", eval_data=held_out, eval_every=1)
    train(dataclasses.replace(WIDE, **settings | more))
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    logged = [{key: x for key, x in line.items() if "reward" in key and "std" not in key} for line in lines]
    rollout = {"rollout/reward/easy": 1, "rollout/reward/hard": 4, "rollout/reward": 1.75}
    rollout |= {f"rollout/missing_rewards{name}": 0 for name in ("", "/easy", "/hard")}
    assert [x for x in logged if "rollout/reward" in x] == [rollout] * 2
    held_out = [each for line in logged for each in line.items() if each[0].startswith("eval/")]
    assert held_out == [("eval/reward", 2), ("eval/reward/easy", 1), ("eval/reward/hard", 4)] * 2


def test_an_environment_without_rewards_has_no_mean(settings, tmp_path, capsys):
    batches = rollouts(**settings, reward="environment_rewards:one,environment_rewards:none")
    prompts = batches.choose(0, 4)
    completions = [(prompt.prompt, "", prompt.fields) for prompt in prompts]
    rewards = batches.rewards(completions, [prompt.environment for prompt in prompts])
    assert rewards == [{"easy": 1.0, "hard": None}[prompt.environment] for prompt in prompts]
    batches.records = CompletionRecords(tmp_path, 0)
    sums: dict[str, tuple[float, int]] = {}
    batches.reward(0, prompts, [Request([1], SamplingParams(), [2], [-1.0])] * 8, sums)
    records = map(json.loads, (tmp_path / "completions.jsonl").read_text().splitlines())
    assert [record["environment"] for record in records] == [prompts[0].environment] * 2
    assert sums["rollout/reward/easy"] == (6.0, 6) and sums["rollout/reward/hard"] == (0.0, 0)
    assert sums["rollout/missing_rewards/easy"] == (0, 6) and sums["rollout/missing_rewards/hard"] == (2, 2)
    log_environments([{"hard": [0.0, 0]}], 3, SimpleNamespace(log_metrics=lambda *_: pytest.fail("a mean of none")))
    assert "step 3: no completion of hard in held-out data has a reward" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ("0.5:/a/sums.jsonl,0.5:riddles/", ["sums", "riddles"]),
        ("1:/gsm8k/train.jsonl,1:/math/train.jsonl,1:/math/more.jsonl", ["gsm8k", "math", "more"]),
        ("1:/gsm8k/*.jsonl,1:/math/**/*.jsonl", ["gsm8k", "math"]),
        ("/gsm8k/*.jsonl", ["gsm8k"]),
        ("*.jsonl", ["here"]),
        ("/*.jsonl", ["data"]),
    ],
)
def test_sources_are_named_by_their_files_or_folders(data, names, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert environment_names(data) == names


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"reward": "environment_rewards:one"},
            r"hard.jsonl:1: --reward .*:one cannot take the row's fields: .*answer",
        ),
        (
            {"reward": ",".join(["environment_rewards:one"] * 3)},
            "^--reward .* must be one function, or one for each source of --data: easy, hard",
        ),
        ({"eval_data": "{folder}/easy.jsonl"}, "^--eval-data .* must have a source for each of --data, in this order"),
        (
            {"data": "1:{folder}/easy.jsonl,1:{folder}/easy.held_out.jsonl"},
            "metrics would call two sources easy: rename one, or its folder",
        ),
    ],
)
def test_what_does_not_fit_is_refused(settings, tmp_path, more, message):
    more = {name: value.format(folder=tmp_path) for name, value in more.items()}
    with pytest.raises(InputError, match=message):
        rollouts(**settings | {"reward": "environment_rewards:any_of_both"} | more)
