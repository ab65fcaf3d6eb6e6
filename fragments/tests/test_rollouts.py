"""Completions that the model samples while it trains, and their policy gradient."""

import dataclasses
import json
import shutil
import statistics
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pebble
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import excludes, point, requires
from generator.language.roles import (
    WIDE,
    Checkpoints,
    CompletionRecords,
    Engine,
    EngineSettings,
    InputError,
    Request,
    Rollouts,
    SamplingParams,
    Texts,
    credit_tokens,
    evaluate_held_out,
    load_checkpoint,
    loss,
    make_mesh,
    new_state,
    policy_loss,
    saving,
    train,
    train_step,
    wide_model,
)

requires("rollouts", "tests/engines")
excludes("critic")  # which has a test of its own

AUXILIARY = {f.name: 0.0 for f in dataclasses.fields(WIDE) if f.name in ("load_balance", "router_z", "mtp_loss_weight")}


REWARDS = """
import os, sys, time

def some(prompt, completion, bonus):
    return sum(map(ord, completion)) % 10 + bonus
def raises(prompt, completion, bonus):
    raise KeyError(completion)
def nan(prompt, completion, bonus):
    return float("nan")
def text(prompt, completion, bonus):
    return "1"
def exits(prompt, completion, bonus):
    sys.exit(0)
def local(prompt, completion, bonus):
    class Own(Exception):
        pass
    raise Own("mine")
def huge(prompt, completion, bonus):
    return 1e300
def later(prompt, completion, bonus):
    with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as file:
        file.write(".")
        return 1 / (file.tell() < 9)
def hangs(prompt, completion, bonus):
    time.sleep(100 * (len(prompt) > 3))
    return 1
def ends(prompt, completion, bonus):
    return os._exit(1) if len(prompt) > 3 else 1
def nothing(prompt, completion, bonus):
    return None if len(prompt) > 3 else 1
number = 1
"""
PROMPTS = [{"prompt": "abc"[: i % 3 + 1] * (i + 1), "bonus": i} for i in range(5)]


def lose_pool(manager, process):
    raise BrokenProcessPool("All workers expired")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    (tmp_path / "rewarding.py").write_text(REWARDS)
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
    monkeypatch.syspath_prepend(tmp_path)
    made = dict(data=str(tmp_path / "prompts.jsonl"), reward="rewarding:some", objective="grpo", group_size=2)
    return made | AUXILIARY | dict(completion_tokens=5, steps=4, checkpoint_dir=str(tmp_path / "run"))


def records(run) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def rollouts(config, model=None) -> Rollouts:
    found = Rollouts(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))
    found.follow(lambda: model, lambda policy: None, None)
    return found


def test_the_gradient_is_that_of_reinforce(settings):
    """While the policy is what sampled: the sum of advantages times gradients of log-probabilities."""
    config = dataclasses.replace(WIDE, **settings)
    model = wide_model()
    batch = next(rollouts(config, model))
    assert np.ptp(batch["advantages"]) > 1

    def reinforce(model):
        every = jax.nn.log_softmax(model(batch["tokens"]))
        chosen = jnp.take_along_axis(every, batch["targets"][..., None], axis=2)[..., 0]
        return -jnp.sum(chosen * batch["advantages"]), chosen

    wanted, chosen = jax.jit(jax.grad(reinforce, has_aux=True))(model)
    np.testing.assert_allclose(batch["sampled_logprobs"], np.where(batch["weights"] > 0, chosen, 0), atol=1e-5)
    batch["sampled_logprobs"] = np.asarray(chosen)
    found, sums = jax.jit(jax.grad(lambda model: loss(model, batch, config), has_aux=True))(model)
    assert sums["targets"] == np.sum(batch["weights"]) and sums["objective"]["clipped"] == 0
    difference = jax.tree.map(jnp.subtract, found, wanted)
    assert optax.tree.norm(difference) < 1e-6 * optax.tree.norm(wanted)


@pytest.mark.parametrize("per", ["token", "sequence"])
def test_ratios_are_clipped(settings, per):
    """Once the policy is another one: as a loop over completions and tokens has it, with the KL term."""
    config = dataclasses.replace(WIDE, **settings, loss_per=per, ratio_per=per, clip_low=0.1, kl_coefficient=0.3)
    batch = next(rollouts(config, wide_model()))
    moved, lead = np.random.default_rng(0).normal(0, 1, (2, *batch["weights"].shape)).astype(np.float32)
    logprobs = batch["sampled_logprobs"].copy()
    batch["sampled_logprobs"] = logprobs + moved * (batch["weights"] > 0)
    batch["reference"] = np.where(batch["weights"] > 0, logprobs + lead, 1e9)
    total, sums = jax.jit(lambda model: loss(model, batch, config))(wide_model())
    wanted = clipped = count = 0.0
    weighed, squares = [], []
    each = zip(batch["weights"] > 0, -moved, lead, batch["advantages"], strict=True)
    for places, moves, leads, advantages in each:
        length = places.sum()
        advantage = advantages[places][0]
        ratios = np.exp(moves[places] if per == "token" else np.full(length, moves[places].mean()))
        gains = np.minimum(ratios * advantage, np.clip(ratios, 0.9, 1.28) * advantage)
        weight = 1 if per == "token" else 1 / length
        divergence = np.sum(np.exp(leads[places]) - leads[places] - 1)  # equation 4 of GRPO
        wanted, count = wanted + weight * (0.3 * divergence - gains.sum()), count + weight * length
        clipped += weight * np.sum(gains < ratios * advantage)
        weighed, squares = [*weighed, weight * ratios.sum()], [*squares, weight * np.sum(ratios**2)]
    assert clipped > 0
    np.testing.assert_allclose(total, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((sums["targets"], sums["objective"]["clipped"]), (count, clipped), rtol=1e-5)
    state = new_state(config, jax.tree.map(jnp.copy, wide_model()))
    metrics = jax.jit(train_step, static_argnums=2)(state, batch, config)[1]
    share = sum(weighed) ** 2 / (count * sum(squares))
    np.testing.assert_allclose(metrics["train/effective_sample_share"], share, rtol=1e-4)
    assert share < 0.9


def test_a_stopped_run_goes_on_to_the_bit(settings, tmp_path):
    """From the middle of a rollout, whose second batch waits, with the same reference and held-out rewards."""
    held_out = [{"prompt": "xyz"[: i % 3 + 1] * (i + 1), "bonus": 0.5} for i in range(7)]
    (tmp_path / "held_out.jsonl").write_text("\n".join(map(json.dumps, held_out)))
    more = dict(batches_per_rollout=2, checkpoint_every=1, keep_last=2, learning_rate=1e-2, eval_every=2)
    more |= dict(eval_data=str(tmp_path / "held_out.jsonl"), eval_batches=2, kl_coefficient=0.1)
    config = dataclasses.replace(WIDE, **settings, **more)
    run = tmp_path / "run"
    imported = Checkpoints(run, config).open()
    imported.save(0, {"model": wide_model()})
    imported.close()
    train(config)
    evaluated = [line for line in records(run) if "eval/reward" in line or "eval/tokens" in line]
    assert [line["step"] for line in evaluated] == [0, 0, 2, 2, 4, 4]
    wanted = jax.tree.leaves(load_checkpoint(str(run), make_mesh(1, 1, 1))[1])
    shutil.rmtree(run / "4")
    train(config)
    found = jax.tree.leaves(load_checkpoint(str(run), make_mesh(1, 1, 1))[1])
    assert all(np.array_equal(x, y) for x, y in zip(found, wanted, strict=True))
    again = [line for line in records(run) if "eval/reward" in line or "eval/tokens" in line]
    assert [x | {"time": ""} for x in again] == [x | {"time": ""} for x in evaluated]
    told = {line["step"]: line for line in records(run) if "train/loss" in line}
    assert [step for step, line in told.items() if "rollout/reward" in line] == [1, 3]
    assert max(told[step]["train/mismatch"] for step in (1, 3)) < 1e-5
    for shares in (line for line in records(run) if "goodput/data" in line and line["step"] < 4):
        assert shares["goodput/sampling"] > shares["goodput/data"]
    assert told[1]["train/kl"] < 1e-8 < 1e-5 < min(told[step]["train/kl"] for step in (2, 3, 4))
    assert min(told[step]["train/mismatch"] for step in (2, 4)) > 1e-4  # a step after the model sampled
    with pytest.raises(InputError, match="not the prompts that this run had"):
        (tmp_path / "prompts.jsonl").write_text(json.dumps(PROMPTS[0]))
        train(dataclasses.replace(config, steps=5))
    with pytest.raises(
        InputError,
        match="step 4 is of completions that a model sampled, or of an earlier release: give it again, or export",
    ):
        texts = str(tmp_path / "rewarding.py")
        changed = dict(objective="next_token", reward="", data=texts, eval_data=texts, allow_other_data=True)
        train(dataclasses.replace(config, steps=5, **changed, kl_coefficient=0.0))
    with pytest.raises(InputError, match="step 4 is of rollouts of 4 prompts, not 2: give --group-size and"):
        train(dataclasses.replace(config, steps=5, batches_per_rollout=1))
    with pytest.raises(InputError, match="step 4 is of another --objective or --batch-size"):
        train(dataclasses.replace(config, steps=5, batch_size=2, allow_other_data=True))


FAILING = {
    "raises": "KeyError.* in .*rewarding.py:7",
    "nan": "nan, and must return a number",
    "exits": "SystemExit",
    "text": "'1', and must return a number",
    "local": "Own.*mine",
    "huge": "1e.300, and must return a number",
}


@pytest.mark.parametrize("name", FAILING)
def test_rewards_that_fail_are_told(settings, name):
    config = dataclasses.replace(WIDE, **settings | {"reward": f"rewarding:{name}"})
    found = rollouts(config, wide_model())
    told = f"rewarding:{name}: on the completion .*{FAILING[name]}.*: fix the function"
    for _ in range(2):  # as an evaluation may follow
        with pytest.raises(InputError, match=told):
            next(found)
    assert {state["round"] for state in found.get_state().values()} == {0}  # which a run that goes on samples again


def test_a_document_that_cannot_be_read_loses_no_sequence(tmp_path):
    """Whichever one it is: once it is mended, a run goes on with the batch that it could not make."""
    config = dataclasses.replace(WIDE, data=str(tmp_path), eval_share=0.0, batch_size=8)
    sharding = NamedSharding(make_mesh(1, 1, 1), PartitionSpec())
    manager = SimpleNamespace(latest_step=lambda: 0)
    files = [tmp_path / f"{number}.txt" for number in range(100, 400)]
    for file in files:
        file.write_bytes(b"x" * (int(file.stem) % 13))
    unbroken = Texts(config, sharding)
    batches = [next(unbroken)["tokens"] for _ in range(10)]
    for file in files[110], files[170], files[200]:
        data = Texts(config, sharding)
        text = file.read_bytes()
        made = 0
        file.write_bytes(b"\xff" * len(text))
        with pytest.raises(InputError, match=f"{file}: byte 0 is not UTF-8"):
            while True:
                with saving(SimpleNamespace(manager=manager), 0, None, data):
                    next(data)
                made += 1
        state = data.get_state()
        file.write_bytes(text)
        data.set_state(state, made)
        np.testing.assert_array_equal(next(data)["tokens"], batches[made])


def test_what_is_done_is_saved_if_a_reward_fails(settings, tmp_path):
    with pytest.raises(InputError, match="ZeroDivisionError"):
        train(dataclasses.replace(WIDE, **settings | {"reward": "rewarding:later"}))
    assert (tmp_path / "run/2").is_dir() or (tmp_path / "run/1").is_dir()
    train(dataclasses.replace(WIDE, **settings))
    assert (tmp_path / "run/4").is_dir()


def test_held_out_prompts_have_a_completion_each(settings, tmp_path):
    """As an engine has them that samples with their places as seeds; a place below 0 is none."""
    rows = [{"prompt": "xyz"[: i % 3 + 1] * (i + 1), "bonus": 0.5} for i in range(9)]
    (tmp_path / "held_out.jsonl").write_text("\n".join(map(json.dumps, rows)))
    more = settings | dict(eval_data=str(tmp_path / "held_out.jsonl"), eval_batches=2, reward="rewarding:some")
    found = rollouts(dataclasses.replace(WIDE, **more), wide_model())
    sums = [found.evaluate(found.policy(), batch) for batch in found.held_out()]
    assert [x["targets"] for x in sums] == [4, 4] and found.round == 0
    engine = Engine(WIDE, wide_model(), found.ends, EngineSettings(max_sequences=1, max_length=32))
    wanted = length = 0
    for place, row in enumerate(rows[:8]):
        sampling = SamplingParams(max_tokens=5, temperature=1.0, seed=place)
        (request,) = engine.generate([found.tokenizer.encode_prompt(row["prompt"])], sampling)
        text = found.tokenizer.decode([token for token in request.tokens if token not in found.ends])
        wanted += sum(map(ord, text)) % 10 + 0.5
        length += len(request.tokens)
    assert sum(x["objective"]["reward"] for x in sums) == wanted
    assert sum(x["objective"]["tokens"] for x in sums) == length


@pytest.mark.parametrize(("sizes", "mean"), [([9] * 4 + [1] * 4, 1.0), ([9] * 8, None)])
def test_held_out_completions_without_a_reward_do_not_count(settings, tmp_path, sizes, mean, capsys):
    """Of one of two batches, or of both."""
    (tmp_path / "held_out.jsonl").write_text("\n".join(json.dumps({"prompt": "x" * i, "bonus": 0}) for i in sizes))
    more = settings | dict(eval_data=str(tmp_path / "held_out.jsonl"), eval_batches=2, reward="rewarding:nothing")
    found = rollouts(dataclasses.replace(WIDE, **more), wide_model())
    metrics: dict[str, float] = {}
    monitor = SimpleNamespace(log_metrics=lambda step, logged: metrics.update(logged))
    evaluate_held_out(found.evaluation(), 3, SimpleNamespace(model=None), found.held_out(), found, monitor)
    assert metrics.get("eval/reward") == mean and "eval/loss" not in metrics
    printed = capsys.readouterr().out
    assert ("no completion of held-out data has a reward" in printed) == (mean is None)
    assert ("step 3: reward on held-out data 1.0000" in printed) == (mean == 1) and "loss" not in printed


@pytest.mark.parametrize("name, is_lost", [("hangs", False), ("ends", False), ("ends", True), ("nothing", False)])
def test_some_completions_have_no_reward(settings, name, is_lost, monkeypatch, capfd):
    if is_lost:  # a process that ends before pebble knows what it runs
        monkeypatch.setattr(pebble.pool.process.PoolManager, "find_expired_task", lose_pool)
    config = dataclasses.replace(WIDE, **settings | {"reward": f"rewarding:{name}"}, reward_seconds=1.0)
    found = rollouts(config)
    prompts = found.choose(0, len(found.prompts))
    rewards = [
        reward for *_, reward in found.rewarded_texts(prompts, [Request([1], SamplingParams(), [2])] * len(prompts))
    ]
    assert rewards == [None if len(prompt.prompt) > 3 else 1 for prompt in prompts] and None in rewards
    assert ("taken as None" in capfd.readouterr().err) == (name != "nothing")


def test_rollouts_of_a_checkpoint_fit_a_sequence(settings):
    batches = rollouts(dataclasses.replace(WIDE, **settings, batches_per_rollout=2), wide_model())
    next(batches)
    states = {str(row): state for row, state in batches.get_state().items()}
    states["1"]["waiting"][0]["tokens"] = [2] * 40
    with pytest.raises(InputError, match="--sequence-length 32: the checkpoint has a rollout of"):
        batches.set_state(states, 1)


def take(batches: Rollouts, count: int) -> None:
    for _ in range(count):
        next(batches)


def test_completions_are_recorded_once(settings, tmp_path):
    """Also those after the checkpoint of a run that was killed, and with more batches per rollout when it goes on."""
    folder = tmp_path / "run"
    folder.mkdir()

    def follow(states, step, **changed):
        batches = rollouts(dataclasses.replace(WIDE, **settings | changed))
        if states:
            batches.set_state({str(row): state for row, state in states.items()}, step)
        batches.follow(wide_model, lambda policy: None, folder)
        return batches

    def read():
        return [json.loads(line) for line in (folder / "completions.jsonl").read_text().splitlines()]

    batches = follow(None, 0)
    take(batches, 2)
    states = batches.get_state()
    take(batches, 2)
    wanted = read()
    assert [(x["step"], x["round"]) for x in wanted[::2]] == [(i + 1, i) for i in range(4)]
    batches = follow(states, 2)
    assert read() == wanted[:4]
    take(batches, 2)
    assert read() == wanted
    batches = follow(states, 2, group_size=4, batches_per_rollout=2)
    take(batches, 3)
    assert [(x["step"], x["round"]) for x in read()] == [(1, 0)] * 2 + [(2, 1)] * 2 + [(3, 2)] * 4 + [(5, 3)] * 4


def test_a_run_goes_on_without_records_of_completions(settings, tmp_path, capsys):
    (tmp_path / "completions.jsonl").mkdir()
    batches = rollouts(dataclasses.replace(WIDE, **settings))
    batches.follow(wide_model, lambda policy: None, tmp_path)
    take(batches, 2)
    assert capsys.readouterr().err.count("warning: completions.jsonl: IsADirectoryError") == 1


def test_groups_of_equal_rewards_are_counted():
    """Where the standard deviation of 0.1, 0.1 and 0.1 is not 0, by rounding. Missing rewards are not equal."""
    sums: dict[str, tuple[float, int]] = {}
    missing = [[0] * 3] * 3 + [[1] * 3, [0, 1, 1]]
    rewards = np.ma.array([[0.1] * 3, [0.7] * 3, [0.1, 0.1, 0.2], [5.0] * 3, [5.0] * 3], mask=missing)
    requests = [Request([1], SamplingParams(), [2], [-1.0])] * 15
    credit_tokens(rewards, requests, sums, WIDE)
    assert sums["rollout/equal_groups"] == (2, 3)


@pytest.mark.parametrize("share", [0.3, 0.8, 1.0])
@pytest.mark.parametrize("scales", [True, False])
def test_missing_rewards_count_nowhere(settings, tmp_path, share, scales):
    """Random groups against a loop over the rewards that there are; where these are negative, 0 would be the best."""
    draw = np.random.default_rng(0)
    size, count = 4, 200
    settings |= dict(group_size=size, batch_size=size, scale_advantages=scales, eval_data=settings["data"])
    config = dataclasses.replace(WIDE, **settings, kl_coefficient=0.3)
    batches = Rollouts(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))
    batches.records = CompletionRecords(tmp_path, 0)
    rewards = np.where(draw.random(count) < share, None, draw.integers(-3, 1, count)).tolist()
    batches.rewards = lambda completions, *_: rewards[: len(completions)]
    requests = [Request([1], SamplingParams(), [2] * (1 + i % 4), [-1.0] * (1 + i % 4)) for i in range(count)]
    point("test_rollouts.requests", requests, config)
    sampled, sums = batches.rewarded(0, batches.choose(0, count // size), requests)
    known = [reward for reward in rewards if reward is not None]
    assert sums["rollout/missing_rewards"] == (count - len(known), count)
    assert sums["rollout/reward"] == (sum(known), len(known))
    for start in range(0, count, size):
        group, rows = rewards[start : start + size], sampled[start : start + size]
        known = [reward for reward in group if reward is not None]
        spread = statistics.pstdev(known) + 1e-6 if scales and known else 1
        is_known = [reward is not None and len(known) > 1 for reward in group]
        wanted = [
            (x - statistics.mean(known)) / spread if known else 0 for x, y in zip(group, is_known, strict=True) if y
        ]
        advantages = [advantage for row in rows for advantage in set(row.advantages)]
        np.testing.assert_allclose(advantages, wanted, atol=1e-6)
        batch = batches.batch(rows) | {"reference": np.full((size, config.sequence_length), -2.0)}
        gradient = jax.grad(lambda x: policy_loss(x, batch, config)[0])(np.full(batch["weights"].shape, -1.0))
        assert np.any(gradient, axis=1).tolist() == is_known
    line = json.loads((tmp_path / "completions.jsonl").read_text().splitlines()[0])
    assert line["reward"] == rewards[0]
    batches.policy = lambda: None
    batches.generate = lambda prompts, places, model: requests[: len(prompts)]
    batch, *_ = batches.held_out()
    sums = batches.evaluate(None, batch)
    known = [(reward, len(x.tokens)) for reward, x in zip(rewards[:size], requests, strict=False) if reward is not None]
    assert sums["targets"] == len(known)
    assert (sums["objective"]["reward"], sums["objective"]["tokens"]) == tuple(
        np.sum(known, axis=0) if known else (0, 0)
    )


def test_bad_input_is_refused(settings, tmp_path):
    def refused(**changed) -> str:
        with pytest.raises(InputError) as caught:
            train(dataclasses.replace(WIDE, **settings | changed))
        return str(caught.value)

    for name in "", "x", "rewarding", "rewarding:", "rewarding:none", "no_module:f", "rewarding:number", ":f", "a:b:c":
        assert "MODULE:FUNCTION" in refused(reward=name)
    assert "--group-size: must divide" in refused(group_size=3)
    assert "--objective no: must be one of next_token, " in refused(objective="no", reward="")
    assert "--reward rewarding:some: --objective next_token has no rewards" in refused(objective="next_token")
    short = "no prompt is short enough for --completion-tokens 33 in"
    assert f"{short} --sequence-length 32" in refused(completion_tokens=33, sequence_length=32, context_length=64)
    assert f"{short} --context-length 32" in refused(completion_tokens=33, sequence_length=64, context_length=32)
    assert "--group-size 1: completions of a prompt are compared" in refused(group_size=1)
    assert "needs --data with prompts" in refused(data="")
    assert "--ratio-per sequence: weighs whole completions: give --loss-per" in refused(ratio_per="sequence")
    for line in "{", "3", "{}", '{"prompt": []}', '{"prompt": 3}', '{"prompt": [{"role": "x"}]}', '[{"prompt": ""}]':
        (tmp_path / "bad.jsonl").write_text(f'{{"prompt": "a"}}\n\n{line}\n')
        problem = refused(data=str(tmp_path / "bad.jsonl"))
        assert "bad.jsonl:3: must be an object of JSON whose prompt is" in problem and "\n" not in problem
        assert "Error(" not in problem and (line != '{"prompt": 3}' or "messages: prompt is 3: fix" in problem)
    for field in "completion", "bonuses":
        (tmp_path / "bad.jsonl").write_text(f'{{"prompt": "a", "bonus": 1, "{field}": "b"}}')
        problem = refused(eval_data=str(tmp_path / "bad.jsonl"))
        assert "bad.jsonl:1: --reward rewarding:some cannot take" in problem and f" '{field}': change" in problem
    (tmp_path / "bad.jsonl").write_text("\n")
    assert "--eval-data" in (problem := refused(eval_data=str(tmp_path / "bad.jsonl"))) and "is empty" in problem
    assert "not of --objective next_token: give 0" in refused(objective="next_token", reward="", kl_coefficient=0.1)
    if not hasattr(WIDE, "lora_rank"):
        assert "has no weights of step 0 to compare with: import some" in refused(kl_coefficient=0.1)
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (tmp_path / "held_out.jsonl").write_text(json.dumps({"prompt": said}))
    assert "held_out.jsonl:1: " in (problem := refused(eval_data=str(tmp_path / "held_out.jsonl")))
    assert "its last message is the assistant's" in problem
