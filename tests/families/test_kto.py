"""KTO of imported weights, against the paper's formula in torch over models of transformers; a resumed run."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch
import transformers

from families import parity
from families.cases import FAMILIES
from families.test_dpo import BETA, MODULES, log_likelihood, make_batches, say, settings
from families.test_sft import save_tokenizer
from families.weaving import LIBRARY, write
from generator.checkpoint.loading import load_package
from generator.weaver import weave

WEIGHTS = {True: 0.8, False: 1.7}
ROWS = [
    {
        "prompt": [say("user", f"{i}?")],
        "completion": [say("assistant", (f"yes {i} ", "no ")[i % 2] * (i % 4 + 1))],
        "label": i % 2 == 0,
    }
    for i in range(30)
]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> tuple[SimpleNamespace, Path, dict[str, torch.nn.Module]]:
    """A package, two models of transformers, and rows with the log-likelihoods of either as their reference."""
    folder, family, models = tmp_path_factory.mktemp("kto"), FAMILIES["llama2"], {}
    options = family.settings | dict(vocab_size=260) | next(iter(family.cases.values())).settings
    config = getattr(transformers, family.config)(**options, attn_implementation="eager", dtype="float32")
    path = write(weave("llama2", "cpu", LIBRARY, parts=("preferences",)), folder)
    package = load_package(path, MODULES)
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    for name in "policy", "reference":
        models[name] = parity.make_reference(getattr(transformers, family.model), config)
        with torch.no_grad():  # of each parameter, a little apart
            for parameter in models[name].parameters():
                parameter.add_(0.02 * len(models) * torch.randn_like(parameter))
        models[name].save_pretrained(folder / name)
        save_tokenizer(folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)  # for the worker
        tokenizer = str(folder / "policy/tokenizer.json")
        package.data.prepare(str(folder / "rows.jsonl"), str(folder / "rows"), tokenizer, workers=1)
    for name in models:
        run, out = str(folder / f"{name}_run"), str(folder / f"of_{name}")
        package.checkpoint.import_hf(str(folder / name), run)
        package.reference.write_reference(run, str(folder / "rows"), out, 4, sequence_length=256)
    return package, folder, models


def kto_settings(folder: Path, **more: object) -> dict[str, object]:
    weights = dict(desirable_weight=WEIGHTS[True], undesirable_weight=WEIGHTS[False])
    return settings(folder, objective="kto", **weights) | more


def read_rows(folder: Path) -> dict[tuple[int, ...], tuple[bool, list[tuple[list[int], int]]]]:
    """By a row's tokens, its label, and its tokens and those of its prompt with the completion of the row before.

    Each with the place where the completion begins, as transformers has them.
    """
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "policy/tokenizer.json"),
        chat_template=(folder / "policy/chat_template.jinja").read_text(),
    )
    options, rows = dict(return_dict=False), {}
    for i, row in enumerate(ROWS):
        start = len(tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, **options))
        own, other = (
            tokenizer.apply_chat_template(row["prompt"] + completion, **options)
            for completion in (row["completion"], ROWS[i - 1]["completion"])
        )
        rows[tuple(own)] = row["label"], [(own, start), (other, start)]
    return rows


def rows_in(batch: dict[str, np.ndarray], rows: dict) -> list:
    """The rows of data in a batch, each checked to be two segments with weights on the completions."""
    found = []
    for row in ({name: values[i] for name, values in batch.items()} for i in range(len(batch["tokens"]))):
        segments = []
        for segment in range(1, row["segment_ids"].max() + 1):
            within = row["segment_ids"] == segment
            tokens = int(row["tokens"][within][0]), *map(int, row["targets"][within])
            segments.append((tokens, row["weights"][within].tolist()))
        for own, other in zip(segments[::2], segments[1::2], strict=True):
            found.append(rows[own[0]])
            for (tokens, weights), (ids, start) in zip((own, other), found[-1][1], strict=True):
                assert (list(tokens), weights) == (ids, [0.0] * (start - 1) + [1.0] * (len(ids) - start))
    return found


def loss_in_torch(policy, reference, rows: list) -> tuple[torch.Tensor, dict[str, float]]:
    """The mean loss of rows that share a reference point, and what is told of them."""
    with torch.no_grad():
        theirs = [[log_likelihood(reference, *answer) for answer in answers] for _, answers in rows]
        others = [
            log_likelihood(policy, *answers[1]) - known[1] for (_, answers), known in zip(rows, theirs, strict=True)
        ]
        kl = torch.stack(others).mean().clamp(min=0)
    losses, margins = [], []
    for (label, answers), known in zip(rows, theirs, strict=True):
        reward = log_likelihood(policy, *answers[0]) - known[0]
        margins.append(BETA * (reward - kl if label else kl - reward))
        losses.append(WEIGHTS[label] * (1 - torch.sigmoid(margins[-1])))
    margins = torch.stack(margins).detach()
    told = {"kl": kl.item(), "margin": margins.mean().item(), "accuracy": (margins > 0).float().mean().item()}
    return torch.stack(losses).mean(), told


def test_losses_and_gradients_are_those_of_the_formula_in_torch(tuned):
    """Of each model with the other as its reference, of which one has a mean below 0: the reference point is 0."""
    package, folder, models = tuned
    rows, points = read_rows(folder), []
    for name, other in ("policy", "reference"), ("reference", "policy"):
        config, model = package.huggingface.load_hf(folder / name)
        config = dataclasses.replace(config, **kto_settings(folder, data=str(folder / f"of_{other}")))
        batch = next(make_batches(package, config))
        found = rows_in(batch, rows)
        assert len(found) > 8 and {label for label, _ in found} == {True, False}
        models[name].zero_grad()
        expected, told = loss_in_torch(models[name], models[other], found)
        expected.backward()
        points.append(told["kl"])
        theirs = parity.saved_gradients(models[name], folder / f"gradients_{name}")
        (loss, sums), gradients = jax.jit(
            jax.value_and_grad(lambda x, batch=batch, config=config: package.step.loss(x, batch, config), has_aux=True)
        )(model)
        arrays = {key: np.asarray(x) / len(found) for key, x in package.parallel.named_arrays(gradients).items()}
        ours = package.huggingface.hf_views(arrays, config)
        for key in theirs:
            assert np.linalg.norm(ours[key] - theirs[key]) < 1e-5 * np.linalg.norm(theirs[key]), key
        values = loss, *(sums["objective"][key] for key in told)
        wanted = expected.item(), *told.values()
        assert sums["targets"] == len(found)
        np.testing.assert_allclose(np.array(values) / len(found), wanted, rtol=1e-5, atol=1e-5)
        # of a step of two microbatches, each has a reference point of its own
        halves = [rows_in({key: values[i::2] for key, values in batch.items()}, rows) for i in range(2)]
        parts = [loss_in_torch(models[name], models[other], half) for half in halves]
        state = package.step.new_state(config, model)
        _, metrics = jax.jit(package.step.train_step, static_argnums=2)(state, batch, config)
        for key in "loss", *told:
            each = [part[1][key] if key in told else part[0].item() for part in parts]
            mean = np.average(each, weights=[*map(len, halves)])
            np.testing.assert_allclose(float(metrics[f"train/{key}"]), mean, rtol=1e-5, atol=1e-5)
    assert min(points) == 0 < max(points)


def test_a_resumed_run_is_the_same_to_the_bit(tuned):
    """Evaluated on rows that are held out, whose loss falls."""
    package, folder, _ = tuned
    whole, resumed = folder / "policy_run", folder / "resumed"
    config = package.huggingface.load_hf(folder / "policy")[0]
    more = dict(checkpoint_dir=str(whole), steps=6, checkpoint_every=3, eval_every=3, eval_share=0.2)
    config = dataclasses.replace(config, **kto_settings(folder, **more))
    package.trainer.train(config)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "6")
    package.trainer.train(dataclasses.replace(config, checkpoint_dir=str(resumed)))
    mesh = package.parallel.make_mesh(1, 1, 1)
    first, again = (jax.tree.leaves(package.checkpoints.load_checkpoint(str(x), mesh)[1]) for x in (whole, resumed))
    for ours, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    told = []
    for run in whole, resumed:
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        told.append([record["eval/loss"] for record in records if "eval/loss" in record])
    assert told[0] == told[1] == sorted(told[0], reverse=True) and len(told[0]) == 3
