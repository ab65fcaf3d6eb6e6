"""Chats of several turns, in which a function answers what the model samples."""

import dataclasses
import functools
import importlib
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import requires, setting
from generator.language.roles import (
    WIDE,
    Conversation,
    Environment,
    InputError,
    Prompt,
    Rollouts,
    SamplingParams,
    answer,
    find_calls,
    load_checkpoint,
    load_ends,
    load_tokenizer,
    make_mesh,
    save_served,
    train,
    wide_model,
)

requires("turns", "tests/engines", "tests/served")

EOS = 257  # </s>


ANSWERING = """
import os, time

def some(prompt, completion, bonus):
    return sum(len(message["content"]) for message in completion) + bonus

def replies(messages, bonus):
    return [{"role": "tool", "content": f"</s>{len(messages)}"}, {"role": "user", "content": "é"}]

def hangs(messages, bonus):
    time.sleep(100 * (bonus == 1))
    return replies(messages, bonus)

def ends(messages, bonus):
    return os._exit(1) if bonus == 1 else replies(messages, bonus)

def raises(messages, bonus):
    raise KeyError(bonus)
"""
INITIALS = (
    "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    save_served(tmp_path / "hf")
    (tmp_path / "hf/chat_template.jinja").write_text(INITIALS)
    (tmp_path / "answering.py").write_text(ANSWERING)
    rows = [{"prompt": [{"role": "user", "content": "abc"[: i + 1], "tool_calls": None}], "bonus": i} for i in range(3)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.syspath_prepend(tmp_path)
    # turns end soon; the log-probabilities are those of the unchanged logits all the same
    often = functools.partial(SamplingParams, logit_bias={EOS: 4.0})
    monkeypatch.setattr(importlib.import_module("..rollouts", __package__), "SamplingParams", often)
    made = dict(
        data=str(tmp_path / "prompts.jsonl"),
        tokenizer=str(tmp_path / "hf/tokenizer.json"),
        objective=setting("policy_objective"),
    )
    made |= dict(reward="answering:some", environment_function="answering:replies", max_turns=3, group_size=2)
    return made | dict(sequence_length=64, completion_tokens=50, checkpoint_dir=str(tmp_path / "run"), steps=3)


def rollouts(config) -> Rollouts:
    found = Rollouts(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))
    found.follow(wide_model, lambda policy: None, None)
    return found


def test_the_model_learns_from_what_it_sampled_alone(settings):
    """In its place among all tokens, with the log-probabilities that it has in training."""
    config = dataclasses.replace(WIDE, **settings, loss_per="sequence")
    found = rollouts(config)
    batch = next(found)
    every = jax.nn.log_softmax(jax.jit(lambda model, tokens: model(tokens))(wide_model(), batch["tokens"]))
    chosen = jnp.take_along_axis(every, batch["targets"][..., None], axis=2)[..., 0]
    sampled = batch["weights"] > 0
    np.testing.assert_allclose(batch["sampled_logprobs"], np.where(sampled, chosen, 0), atol=1e-5)
    np.testing.assert_allclose(batch["weights"].sum(axis=1), 1, rtol=1e-5)
    assert not batch["advantages"][~sampled].any() and np.ptp(batch["advantages"][sampled]) > 0
    prompts = found.prompts
    seeds = [7, 8, 9]
    talks = found.generate(prompts, seeds, found.policy())
    turns = []
    for talk in talks:
        given = np.isnan(talk.logprobs)
        at, count = 0, 0
        for place, message in enumerate(talk.messages):
            if message["role"] == "assistant":
                end = next((i for i in range(at, len(given)) if talk.tokens[i] == EOS), len(given))
                assert not given[at : end + 1].any()
                assert found.tokenizer.decode(talk.tokens[at:end]) == message["content"]
                at, count = end + 1, count + 1
            elif message["role"] == "tool":  # the text </s> is no token
                texts = f"t:</s>{place + 1}", "u:é", "a:"
                wanted = [*map(found.tokenizer.encode, texts)]
                wanted = [*wanted[0], EOS, *wanted[1], EOS, *wanted[2]]
                assert talk.tokens[at : at + len(wanted)] == wanted and given[at : at + len(wanted)].all()
                at += len(wanted)
        assert (
            at >= len(given) and len(given) <= 50 and (talk.finish == "stop") == (count == 3 and talk.tokens[-1] == EOS)
        )
        turns.append(count)
    assert max(turns) == 3
    (alone,) = found.generate([prompts[1]], [8], found.policy())
    assert (alone.tokens, alone.messages) == (talks[1].tokens, talks[1].messages)


def test_a_stopped_run_goes_on_to_the_bit(settings, tmp_path):
    """From the middle of a rollout, with held-out chats; without the function it does not."""
    more = dict(batches_per_rollout=2, checkpoint_every=1, learning_rate=1e-2, eval_data=settings["data"])
    config = dataclasses.replace(WIDE, **settings, **more)
    run = tmp_path / "run"
    train(config)

    def told(*names: str) -> dict[tuple[int, str], float]:
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return {(line["step"], name): line[name] for line in lines for name in names if name in line}

    wanted = jax.tree.leaves(load_checkpoint(str(run), make_mesh(1, 1, 1))[1])
    rewards, mismatch = told("eval/reward", "rollout/turns", "rollout/reward"), told("train/mismatch")
    assert [step for step, _ in rewards] == [1, 1, 3, 3, 3]
    assert 1 < rewards[1, "rollout/turns"] <= 3 and max(mismatch[step, "train/mismatch"] for step in (1, 3)) < 1e-5
    for step in "2", "3":
        shutil.rmtree(run / step)
    train(config)
    found = jax.tree.leaves(load_checkpoint(str(run), make_mesh(1, 1, 1))[1])
    assert all(np.array_equal(x, y) for x, y in zip(found, wanted, strict=True))
    assert told("eval/reward", "rollout/turns", "rollout/reward") == rewards
    chats = [json.loads(line)["completion"] for line in (run / "completions.jsonl").read_text().splitlines()]
    assert {message["role"] for chat in chats for message in chat} == {"assistant", "tool", "user"}
    with pytest.raises(InputError, match="--environment-function and --max-turns: give both, also to go on"):
        train(dataclasses.replace(config, environment_function="", steps=5))


@pytest.mark.parametrize("name", ["hangs", "ends"])
def test_functions_that_do_not_end_end_the_chat(settings, name, capfd):
    config = dataclasses.replace(WIDE, **settings | {"environment_function": f"answering:{name}"}, reward_seconds=1.0)
    found = rollouts(config)
    talks = found.generate(found.prompts, [7, 8, 9], found.policy())
    assert len(talks[1].messages) == 1 < max(len(talk.messages) for talk in talks)
    assert [talk.is_unfinished for talk in talks] == [False, True, False]
    assert f"answering:{name}: on the completion" in (said := capfd.readouterr().err) and ": taken as None" in said


def test_functions_that_fail_are_told(settings):
    data = rollouts(dataclasses.replace(WIDE, **settings | {"environment_function": "answering:raises"}))
    with pytest.raises(InputError, match=r"answering:raises: on the completion .*KeyError.*answering\.py:\d+: fix the"):
        next(data)
    assert {state["round"] for state in data.get_state().values()} == {0}  # which a run that goes on samples again


NO_ANSWERS = (
    *("text", {}, 0, False, [3], [[]], [{}], [{"role": "user"}], [{"role": "user", "content": 3}]),
    *([{"role": role, "content": "x"}] for role in ("assistant", "system", None, ["user"])),
    {"role": "user", "content": "x"},
)


@pytest.mark.parametrize("found", NO_ANSWERS, ids=str)
def test_what_is_no_answer_is_told(found):
    told = answer(lambda messages: found, [], [], {})
    assert told.startswith("returned ") and "must return None, or a list of messages, each with role tool or" in told


def test_answers(settings):
    """Are what JSON makes of them; calls are found as the server finds them."""
    long = "x" * 1_000_001
    user = {"role": "user", "content": "é", "more": (1, {2: 3})}
    assert answer(lambda messages, a: None, [], [], {"a": 1}) == answer(lambda messages: [], [], [], {}) == []
    assert answer(lambda messages, a: [user], [], [], {"a": 1}) == [user | {"more": [1, {"2": 3}]}]
    assert answer(lambda messages: messages, [user], [user], {})[1]["content"] == "é"
    assert "bytes, and may return 1,000,000" in answer(lambda messages: [user | {"content": long}], [], [], {})
    assert answer(lambda messages: [user | {"content": "\ud83d"}], [], [], {})[0]["content"] == "\ufffd"
    for wrong in user | {"more": b"x"}, user | {"more": {1}}:
        assert "Error(" in answer(lambda messages: [wrong], [], [], {})
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "größer"}}\n</tool_call>'
    text = f'a{call}<tool_call>{{"name": 3}}</tool_call>{call}<tool_call>[]</tool_call><tool_call>x'
    wanted = {"type": "function", "function": {"name": "look", "arguments": {"at": "größer"}}}
    assert find_calls(text) == [wanted] * 2


CANNOT_GO_ON = {
    "{{ messages[-1].content }}": "it writes what comes before in another way",
    "{% for m in messages %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}{% endfor %}": "in another way",
    INITIALS.replace("{{ eos_token }}", "\n"): "after a turn, and no token that ends a text",
    INITIALS + "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}": "no tools",
    INITIALS.replace(
        "{{ m.content }}", "{% if m.role != 'tool' %}{{ m.content }}{% endif %}"
    ): "it leaves messages out",
    "{{ messages | length }}" + INITIALS: "it writes what comes before in another way",
}


@pytest.mark.parametrize("template", CANNOT_GO_ON)
def test_templates_that_cannot_go_on_are_refused(template, settings, tmp_path):
    (tmp_path / "hf/chat_template.jinja").write_text(template)
    config = dataclasses.replace(WIDE, **settings)
    row = Prompt("x:1", [{"role": "user", "content": "a"}], {"bonus": 1}, [1])
    tokenizer = load_tokenizer(config.tokenizer)
    environment = Environment(config, tokenizer, load_ends(tokenizer, config.tokenizer), [row])
    talk = Conversation([1], SamplingParams(), row=row, messages=[{"role": "assistant", "content": "b"}])
    with pytest.raises(
        InputError, match=f"x:1: .*: the chat template cannot add .*{CANNOT_GO_ON[template]}.*: answer by another"
    ):
        environment.between(talk, [{"role": "tool", "content": "seen"}])


def test_bad_input_is_refused(settings, tmp_path):
    def refused(*rows: object, **changed: object) -> str:
        if rows:
            (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, rows)))
        with pytest.raises(InputError) as caught:
            train(dataclasses.replace(WIDE, **settings | changed))
        return str(caught.value)

    assert "give both, also to go on" in refused(max_turns=0)
    assert "give both, also to go on" in refused(environment_function="")
    assert "--max-turns -1" in refused(max_turns=-1)
    for name in "answering", "no_module:f", "answering:os":
        assert f"--environment-function {name}: must be MODULE:FUNCTION" in refused(environment_function=name)
    good = {"prompt": [{"role": "user", "content": "a"}], "bonus": 1}
    bad = str(tmp_path / "bad.jsonl")
    assert "bad.jsonl:2: --environment-function answers in chats" in refused(
        good, {"prompt": "a", "bonus": 1}, eval_data=bad
    )
    problem = refused(good, good | {"messages": 3}, data=bad)
    assert "bad.jsonl:2: --reward answering:some cannot take" in problem
