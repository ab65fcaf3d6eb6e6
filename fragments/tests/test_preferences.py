"""Pairs of answers, and completions with a label: tokens, batches, losses against plain sums; what is refused."""

import dataclasses
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    CHAT_FORMS,
    CHAT_MARK,
    PREFERENCES,
    PRESETS,
    WARNED_CHATS,
    WITH_REFERENCE,
    Batches,
    Chats,
    InputError,
    assert_same,
    kto_loss,
    load_tokenizer,
    log_odds,
    make_mesh,
    open_documents,
    preference_loss,
    read_sequences,
    refused_prepare,
    run_prepare,
    save_chat_tokenizer,
    say,
    train,
)

requires("data/pairs")


def encode(chats: Chats, **fields: object) -> np.ndarray:
    return chats(CHAT_MARK + json.dumps(fields | {"source": "a row"}))


def answer(text: str) -> list[dict[str, object]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize("form", ["chatml", "llama 3", "mistral"])
def test_answers_have_the_tokens_of_their_completions(form, tmp_path):
    path = save_chat_tokenizer(tmp_path, CHAT_FORMS[form])
    chats = Chats(load_tokenizer(path), path, "assistant")
    asked = say("a", "b", "c")
    one = answer("yes")
    two = [*answer("no"), *say("why?"), *answer("so")]
    for prompt, chosen, rejected in (asked, one, answer("no, no")), (asked[2:], two, one), ("2 + 2 =", " 4", " five"):
        found = encode(chats, chosen=chosen, rejected=rejected, prompt=prompt)
        wanted = [encode(chats, prompt=prompt, completion=completion) for completion in (chosen, rejected)]
        for name in "token", "weight":
            assert found[name].tolist() == [x for part in wanted for x in part[name].tolist()]
        assert found["answer"].tolist() == [i for i, part in enumerate(wanted, 1) for _ in part]
        assert np.isnan(found["reference"]).all()
        if isinstance(prompt, list):  # whole chats, beside a text or nothing
            for more in {"prompt": "unused"}, {}:
                again = encode(chats, chosen=prompt + chosen, rejected=prompt + rejected, **more)
                assert again.tobytes() == found.tobytes()


REFUSED = [
    (dict(chosen="a", rejected="a", prompt="b"), "chosen and rejected are the same"),
    (dict(chosen="a", rejected="b"), "chosen: prompt must be a list of messages"),
    (dict(chosen="a", rejected=None, prompt="b"), "chosen and rejected must both be texts"),
    (dict(chosen="a", rejected="", prompt="b"), "rejected: completion says nothing"),
    (dict(chosen=[], rejected=answer("b"), prompt=say("a")), "chosen: completion must be a list of messages"),
    (dict(chosen="a", rejected="b", prompt=say("a")), "chosen: completion must be a list of messages"),
    (dict(chosen=say("a", "b"), rejected=say("c", "d")), "chosen and rejected have no first message in common"),
    (dict(chosen=say("a", "b", "c"), rejected=say("a", "b", "d")), "chosen must end with a message of the assistant"),
    (dict(chosen=say("a", "b"), rejected=say("a", "b", "c")), "rejected must end with a message of the assistant"),
    (
        dict(chosen=answer("x"), rejected=[{**answer("y")[0], "weight": 0}], prompt=say("a")),
        "rejected has no token with",
    ),
    (dict(chosen=answer("x"), rejected=[3], prompt=say("a")), r"rejected: completion\[0\] must be an object"),
    (dict(chosen=3, rejected={}, prompt=say("a")), "chosen and rejected must both be texts, or both lists"),
    (dict(prompt="a", completion="b", label=None), "label must be true or false, and is null"),
    (dict(prompt="a", completion="b", label=1), "label must be true or false, and is 1"),
    (dict(prompt="a", completion="b", label="true"), 'label must be true or false, and is "true"'),
    (dict(prompt="a", completion="", label=True), "this row: completion says nothing"),
    (dict(prompt=say("a"), completion=say("b"), label=True), "this row must end with a message of the assistant"),
]


@pytest.mark.parametrize(("row", "problem"), REFUSED)
def test_what_is_no_pair_is_named(row, problem, tmp_path):
    path = save_chat_tokenizer(tmp_path, CHAT_FORMS["chatml"])
    data = write_rows(tmp_path / "pairs.jsonl", [row])
    with pytest.raises(InputError, match=rf"pairs\.jsonl:1: {problem}.*: fix it, or leave it out"):
        Chats(load_tokenizer(path), path, "assistant")(open_documents(data)[0][0])


LABELED = [dict(prompt=say(f"{i}?"), completion=answer(f"yes {i} " * (i + 1)), label=i != 1) for i in range(3)]


def write_rows(path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def config(tmp_path):
    """Returns settings with 13 pairs. Three do not fit a sequence: one by its rejected answer, two by both.

    Of one, the answers are the same where they are cut.
    """
    rows = [dict(prompt=f"{i}?", chosen="yes " * (i % 3 + 1), rejected="no " * (i % 2 + 1)) for i in range(10)]
    rows += [dict(prompt="?", chosen="x" * size, rejected="y" * 200) for size in (8, 100)]
    rows.append(dict(prompt="?", chosen="z" * 200 + "y", rejected="z" * 200 + "x"))
    fields = dict(tokenizer=save_chat_tokenizer(tmp_path / "tokenizer", CHAT_FORMS["chatml"]), vocab_size=400)
    fields |= dict(sequence_length=64, batch_size=2, eval_share=0.0, objective="orpo")
    return dataclasses.replace(PRESETS["tiny"], data=write_rows(tmp_path / "pairs.jsonl", rows), **fields)


def make_batches(config) -> Batches:
    return Batches(config, jax.sharding.NamedSharding(make_mesh(1, 1, 1), jax.sharding.PartitionSpec()))


def test_pairs_stay_together_in_batches(config, tmp_path, capsys):
    WARNED_CHATS.clear()
    tokenizer = load_tokenizer(config.tokenizer)
    seen = set()
    for row in itertools.islice(read_sequences(config, "train"), 40):
        pairs = np.arange(1, row["segment_ids"].max() + 1).reshape(-1, 2)
        for pair in pairs:
            within = [row["segment_ids"] == segment for segment in pair]
            assert all(row["positions"][x].tolist() == [*range(np.sum(x))] for x in within)
            seen.add(tuple(tokenizer.decode(row["targets"][x][row["weights"][x] > 0].tolist()) for x in within))
    told = capsys.readouterr().err
    assert "longer than a sequence, whose ends are cut off: 1 so far" in told
    assert "the same once they are cut, and which are left out: 1 so far" in told
    whole = {(chosen, rejected) for chosen, rejected in seen if "x" not in chosen}
    assert whole == {("yes " * (i % 3 + 1), "no " * (i % 2 + 1)) for i in range(6)}
    # of 64 targets: 8 and eos, so that 55 are left; or half for each
    assert {(len(chosen), len(rejected)) for chosen, rejected in seen - whole} == {(8, 55), (32, 32)}
    dropped = read_sequences(dataclasses.replace(config, long_chats="drop"), "train")
    assert all(next(dropped)["segment_ids"].max() <= 12 for _ in range(9))
    with pytest.raises(InputError, match=r"a chat of .* tokens, more than --sequence-length 64"):
        refusing = read_sequences(dataclasses.replace(config, long_chats="refuse"), "train")
        for _ in range(9):
            next(refusing)
    ended = run_prepare(config.data, tmp_path / "out", "--tokenizer", config.tokenizer, "--workers=1")
    assert ended.returncode == 0 and "13 documents" in ended.stdout, ended.stderr
    plain, prepared = make_batches(config), make_batches(dataclasses.replace(config, data=str(tmp_path / "out")))
    for _ in range(9):
        assert_same(next(plain), next(prepared))


def test_a_label_has_the_completions_of_two_rows(config, tmp_path):
    """Its own, and that of the row before, after its prompt; texts as well as messages."""
    texts = [dict(prompt=f"{i}?", completion="yes " * (i + 1), label=i != 1) for i in range(3)]
    chats = Chats(load_tokenizer(config.tokenizer), config.tokenizer, "assistant")
    for name, rows in {"messages": LABELED, "texts": texts}.items():
        data = write_rows(tmp_path / f"{name}.jsonl", rows)
        for document, row in zip(open_documents(data)[0], rows, strict=True):
            wanted = encode(chats, prompt=row["prompt"], completion=row["completion"])
            found = chats(document)
            assert {*found["answer"]} == {3 if row["label"] else 4} and np.isnan(found["reference"]).all()
            assert found["token"].tolist() == wanted["token"].tolist() and found["weight"].any()
            assert found["weight"].tolist() == wanted["weight"].tolist()
        ended = run_prepare(data, tmp_path / name, "--tokenizer", config.tokenizer, "--workers=1")
        assert ended.returncode == 0 and "3 documents" in ended.stdout, ended.stderr
        fields = dict(data=str(tmp_path / name), objective="reference", sequence_length=256)
        row = next(read_sequences(dataclasses.replace(config, **fields), "train"))
        seen = set()
        for first in 1, 3, 5:
            for segment in first, first + 1:
                within = row["segment_ids"] == segment
                assert len({*row["answers"][within].tolist()}) == 1
                tokens = row["tokens"][within][0], *row["targets"][within]
                seen.add((row["answers"][within][0], tokens, (0.0, *row["weights"][within])))
        wanted = set()
        for i, row in enumerate(rows):
            for number, completion in (3 + (i == 1), row["completion"]), (5, rows[i - 1]["completion"]):
                weighted = encode(chats, prompt=row["prompt"], completion=completion)
                wanted.add((number, (*weighted["token"].tolist(),), (*weighted["weight"].tolist(),)))
        assert seen == wanted


UNLABELED = {
    "has a chosen and a rejected answer, or a label, or neither, unlike the first row, which has a label": dict(
        prompt=say("a"), completion=answer("b")
    ),
    "label must be true or false, and is null": dict(prompt=say("a"), completion=answer("b"), label=None),
    'label must be true or false, and is "no"': dict(prompt=say("a"), completion=answer("b"), label="no"),
}


@pytest.mark.parametrize("problem", UNLABELED)
def test_a_row_without_a_label_is_named(problem, config, tmp_path):
    data = write_rows(tmp_path / "labels.jsonl", [*LABELED[:2], UNLABELED[problem]])
    options = "--tokenizer", config.tokenizer, "--workers=1"
    refused = refused_prepare(data, tmp_path / "out", *options)
    assert "labels.jsonl:3: " in refused and problem in refused
    odd = write_rows(tmp_path / "odd.jsonl", [*LABELED[:1], dict(prompt="a", completion="b", label=True)])
    refused = refused_prepare(odd, tmp_path / "odd", *options)
    assert "odd.jsonl:1: the completion of " in refused and "odd.jsonl:2: completion must be a list" in refused
    alone = write_rows(tmp_path / "alone.jsonl", LABELED[:1])
    refused = refused_prepare(alone, tmp_path / "alone", *options)
    assert "alone.jsonl:1: is the only row of its files: give more in one file" in refused


def test_objectives_and_data_must_fit(config, tmp_path):
    with pytest.raises(
        InputError, match=r"holds pairs, not for next_token: give other data, or train with --objective"
    ):
        make_batches(dataclasses.replace(config, objective="next_token"))
    with pytest.raises(InputError, match=r"has no log-likelihoods of a reference.*reference --checkpoint-dir DIR"):
        make_batches(dataclasses.replace(config, objective="dpo"))
    texts = write_rows(tmp_path / "texts.jsonl", [{"text": "a text"}])
    with pytest.raises(InputError, match=r"holds no pairs .*, not for dpo: give other data, or .* next_token"):
        make_batches(dataclasses.replace(config, data=texts, objective="dpo"))
    with pytest.raises(InputError, match="--objective ppo: must be one of next_token, dpo"):
        train(dataclasses.replace(config, objective="ppo"))
    mixed = write_rows(tmp_path / "mixed.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}, {"text": "d"}])
    refused = refused_prepare(mixed, tmp_path / "mixed", "--tokenizer", config.tokenizer, "--workers=1")
    assert "mixed.jsonl: the text 'd': has a chosen and a rejected answer, or a label, or neither, unlike" in refused
    labeled = write_rows(tmp_path / "labeled.jsonl", LABELED)
    with pytest.raises(InputError, match=r"holds completions with a label, not for dpo: .* or train with .* kto$"):
        make_batches(dataclasses.replace(config, data=labeled, objective="dpo"))
    with pytest.raises(InputError, match="holds completions with a label, not for next_token"):
        make_batches(dataclasses.replace(config, data=labeled, objective="next_token"))
    with pytest.raises(InputError, match="holds pairs, not for kto"):
        make_batches(dataclasses.replace(config, objective="kto"))
    with pytest.raises(InputError, match="has no log-likelihoods of a reference, which --objective kto compares with"):
        make_batches(dataclasses.replace(config, data=labeled, objective="kto"))


@pytest.mark.parametrize("objective", PREFERENCES)
def test_losses_are_sums_over_pairs(objective):
    """Of two rows, with two pairs and one; padding and weights of 0 count nothing, at a likelihood of 1 neither."""
    config = dataclasses.replace(PRESETS["tiny"], objective=objective, preference_beta=0.3, preference_margin=0.7)
    ids = np.array([[1, 1, 2, 2, 2, 3, 4, 4, 0], [1, 1, 1, 1, 2, 2, 0, 0, 0]], np.int32)
    weights = np.array([[0, 1, 0, 1, 1, 1, 0, 1, 0], [0, 1, 0.5, 1, 1, 1, 0, 0, 0]], np.float32)
    rng = np.random.default_rng(0)
    given, reference = (-rng.exponential(size=ids.shape).astype(np.float32) for _ in range(2))
    given[0, 7] = 0
    batch = {"segment_ids": ids, "weights": weights, "reference": reference}
    gradient = jax.value_and_grad(lambda x: preference_loss(x, batch, config)[0])(jnp.array(given))[1]
    assert np.isfinite(gradient).all() and not gradient[weights == 0].any()
    scores = (given - reference * (objective in WITH_REFERENCE)) * weights
    losses, margins = [], []
    for row, first in (0, 1), (0, 3), (1, 1):
        chosen, rejected = (scores[row][ids[row] == i].sum() for i in (first, first + 1))
        sizes = [weights[row][ids[row] == i].sum() for i in (first, first + 1)]
        if objective != "dpo":
            chosen, rejected = chosen / sizes[0], rejected / sizes[1]
        margins.append(chosen - rejected)
        odds = [math.log(p / (1 - p)) for p in (math.exp(min(x, -1e-6)) for x in (chosen, rejected))]
        losses.append(
            {
                "ipo": (margins[-1] - 1 / 0.6) ** 2,
                "orpo": -chosen + 0.3 * math.log(1 + math.exp(odds[1] - odds[0])),
            }.get(objective, math.log(1 + math.exp((objective == "simpo") * 0.7 - 0.3 * margins[-1])))
        )
    loss, pairs, sums = preference_loss(jnp.array(given), batch, config)
    np.testing.assert_allclose([loss, pairs], [sum(losses), 3], rtol=1e-5)
    np.testing.assert_allclose(sums["margin"], 0.3 * sum(margins), rtol=1e-5)
    assert sums["accuracy"] == sum(margin > 0 for margin in margins)
    if objective in WITH_REFERENCE:  # a policy that is the reference is as good, whatever rounding says
        for noise in rng.normal(scale=1e-6, size=(20, *ids.shape)):
            _, _, sums = preference_loss(jnp.array(reference * (1 + noise), jnp.float32), batch, config)
            assert sums["accuracy"] == 0 and sums["margin"] != 0
    assert np.isfinite(jax.grad(log_odds)(0.0))


@pytest.mark.parametrize("sign", [1, -1])
def test_kto_is_a_sum_over_rows(sign):
    """Of two rows of a batch with two rows of data and one; the KL is that of the batch, or 0, and has no gradient."""
    fields = dict(objective="kto", preference_beta=0.3, desirable_weight=0.8, undesirable_weight=1.7)
    config = dataclasses.replace(PRESETS["tiny"], **fields)
    ids = np.array([[1, 1, 2, 2, 2, 3, 4, 4, 0], [1, 1, 1, 1, 2, 2, 0, 0, 0]], np.int32)
    answers = np.array([[3, 3, 5, 5, 5, 4, 5, 5, 0], [4, 4, 4, 4, 5, 5, 0, 0, 0]], np.int32)
    weights = np.array([[0, 1, 0, 1, 1, 1, 0, 1, 0], [0, 1, 0.5, 1, 1, 1, 0, 0, 0]], np.float32)
    rng = np.random.default_rng(0)
    reference = -rng.exponential(size=ids.shape).astype(np.float32)
    given = reference + sign * rng.exponential(size=ids.shape).astype(np.float32)
    batch = {"segment_ids": ids, "weights": weights, "reference": reference, "answers": answers}
    scores = (given - reference) * weights
    kl = max(0, sign * abs(scores[answers == 5].sum()) / 3)
    margins, losses = [], []
    slopes = np.zeros_like(weights)
    for row, first, is_desirable in (0, 1, True), (0, 3, False), (1, 1, False):
        direction = 0.3 if is_desirable else -0.3
        margins.append(direction * (scores[row][ids[row] == first].sum() - kl))
        value = 1 / (1 + math.exp(-margins[-1]))
        losses.append((0.8 if is_desirable else 1.7) * (1 - value))
        slopes[row][ids[row] == first] = -(0.8 if is_desirable else 1.7) * value * (1 - value) * direction
    (loss, (rows, sums)), gradient = jax.value_and_grad(
        lambda x: (lambda total, *more: (total, more))(*kto_loss(x, batch, config)), has_aux=True
    )(jnp.array(given))
    told = sums["margin"], sums["kl"], sums["accuracy"]
    expected = sum(losses), 3, sum(margins), 3 * kl, sum(margin > 0 for margin in margins)
    np.testing.assert_allclose([loss, rows, *told], expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, slopes * weights, rtol=1e-5, atol=1e-7)
    for noise in rng.normal(scale=1e-6, size=(20, *ids.shape)):  # a policy that is the reference
        _, _, sums = kto_loss(jnp.array(reference * (1 + noise), jnp.float32), batch, config)
        assert sums["accuracy"] == 0 and sums["margin"] != 0
