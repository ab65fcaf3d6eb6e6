"""Reward models against those of transformers for sequence classification: losses, gradients, checkpoints, scores."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch
import transformers
from jax.sharding import NamedSharding, PartitionSpec
from selected import mostly_slow
from torch.nn.functional import logsigmoid

from families import parity
from families.cases import FAMILIES
from families.test_dpo import ROWS, read_pairs
from families.test_sft import save_tokenizer
from families.weaving import LIBRARY, write
from generator.checkpoint.loading import load_package
from generator.weaver import weave

MODULES = "checkpoint", "config", "data", "huggingface", "model", "parallel", "score", "step"
CENTER = 0.1


@pytest.fixture(scope="module", params=mostly_slow(["llama2", "mixtral"], "llama2"))
def rewarding(request, tmp_path_factory) -> tuple[SimpleNamespace, Path, torch.nn.Module, list]:
    """A package, a reward model of transformers, and the chosen and rejected tokens of each pair."""
    folder, family = tmp_path_factory.mktemp(request.param), FAMILIES[request.param]
    settings = family.settings | dict(vocab_size=260) | next(iter(family.cases.values())).settings
    config = getattr(transformers, family.config)(
        **settings, num_labels=1, pad_token_id=None, attn_implementation="eager", dtype="float32"
    )
    model = parity.make_reference(
        getattr(transformers, family.model.replace("CausalLM", "SequenceClassification")), config
    )
    language = parity.make_reference(getattr(transformers, family.model), config)
    for name, saved in ("policy", model), ("language", language):
        saved.save_pretrained(folder / name)
        save_tokenizer(folder / name)
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    path = write(weave(request.param, "cpu", LIBRARY, parts=("reward_model",)), folder)
    return load_package(path, MODULES), folder, model, [[ids for ids, _ in pair] for pair in read_pairs(folder)]


def reward_of(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids]), use_cache=False).logits[0, 0]


def pairs_in(batch: dict[str, np.ndarray], pairs: list) -> list:
    """The pairs that a batch holds, each checked to be two segments with a weight on the last token alone."""
    known, found = {tuple(pair[0]): pair for pair in pairs}, []
    for tokens, ids, weights in zip(batch["tokens"], batch["segment_ids"], batch["weights"], strict=True):
        segments = [tuple(map(int, tokens[ids == i])) for i in range(1, ids.max() + 1)]
        for i, (chosen, rejected) in enumerate(zip(segments[::2], segments[1::2], strict=True)):
            found.append(known[chosen])
            assert [*map(list, (chosen, rejected))] == found[-1]
            for segment in 2 * i + 1, 2 * i + 2:
                assert weights[ids == segment].tolist() == [0.0] * (np.sum(ids == segment) - 1) + [1.0]
    return found


def test_losses_and_gradients_are_those_of_formulas_in_torch(rewarding):
    package, folder, model, pairs = rewarding
    config, ours = package.huggingface.load_hf(folder / "policy")
    alone = {name: 0.0 for name in ("load_balance", "router_z") if hasattr(config, name)}
    changed = dict(data=str(folder / "pairs.jsonl"), batch_size=4, sequence_length=256, accumulation=2, eval_share=0.0)
    config = dataclasses.replace(config, **changed, **alone, objective="reward", reward_center=CENTER)
    layout = NamedSharding(package.parallel.make_mesh(1, 1, 1), PartitionSpec())
    batch = next(package.data.Batches(config, layout))
    there = pairs_in(batch, pairs)
    assert len(there) > 2 * len(batch["tokens"])
    model.zero_grad()
    rewards = [[reward_of(model, ids) for ids in pair] for pair in there]
    expected = torch.stack([CENTER * (a + b) ** 2 - logsigmoid(a - b) for a, b in rewards]).mean()
    expected.backward()
    theirs = parity.saved_gradients(model, folder / "gradients")
    gradients, sums = jax.jit(jax.grad(lambda x: package.step.loss(x, batch, config), has_aux=True))(ours)
    assert sums["targets"] == len(there)
    arrays = {name: np.asarray(x) / len(there) for name, x in package.parallel.named_arrays(gradients).items()}
    found = package.huggingface.hf_views(arrays, config)
    assert found.keys() == theirs.keys() and np.any(theirs["score.weight"])
    for name in theirs:
        # of an expert that no token chose, both are 0
        assert np.linalg.norm(found[name] - theirs[name]) <= 1e-5 * np.linalg.norm(theirs[name]), name
    state = package.step.new_state(config, ours)
    _, metrics = jax.jit(package.step.train_step, static_argnums=2)(state, batch, config)
    values = np.array([[x.item() for x in pair] for pair in rewards])
    margins = values[:, 0] - values[:, 1]
    told = {"loss": expected.item(), "accuracy": np.mean(margins > 0), "margin": margins.mean()}
    told |= {"chosen_reward": values[:, 0].mean()}
    np.testing.assert_allclose(
        [float(metrics[f"train/{name}"]) for name in told], [*told.values()], rtol=1e-5, atol=1e-5
    )


def test_scores_and_exports_are_those_of_transformers(rewarding):
    """Of pairs, chats and texts, each at its last token; one longer than a sequence has none."""
    package, folder, model, pairs = rewarding
    package.checkpoint.import_hf(str(folder / "policy"), str(folder / "run"))
    row = dict(prompt=ROWS[0]["prompt"], completion=ROWS[0]["chosen"])
    rows = [*ROWS, row, row | {"label": True}]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sizes = [len(ids) for pair in pairs for ids in pair] + [len(pairs[0][0])] * 2
    most = max(sizes) - 1
    package.score.write_scores(str(folder / "run"), str(folder / "rows.jsonl"), str(folder / "out.jsonl"), 4, most)
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    with torch.no_grad():
        rewards = [[reward_of(model, ids).item() for ids in pair] for pair in pairs]
    named = [dict(zip(("chosen", "rejected"), pair, strict=True)) for pair in rewards]
    named += [{"reward": rewards[0][0]}] * 2
    long = [size > most for size in sizes]
    assert [[*line] for line in lines] == [[*line] for line in named] and 0 < sum(long) < len(long)
    found = [x for line in lines for x in line.values()]
    assert [x is None for x in found] == long
    wanted = [x for line in named for x in line.values()]
    for x, y in zip(found, wanted, strict=True):
        assert x is None or abs(x - y) < 1e-5 * max(map(abs, wanted))
    package.checkpoint.export_hf(str(folder / "run"), str(folder / "exported"))
    again = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "exported", dtype="float32").eval()
    assert type(again) is type(model) and again.config.num_labels == 1
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_language_model_begins_with_a_head_that_rewards_nothing(rewarding):
    package, folder, _, _ = rewarding
    config, model = package.huggingface.load_hf(folder / "language")
    names = package.huggingface.hf_views(package.parallel.named_arrays(model), config).keys()
    assert "score.weight" in names and "lm_head.weight" not in names and not np.any(model.score[...])
