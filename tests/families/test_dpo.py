"""Preference optimization of imported weights, against formulas in torch over models of transformers; resumed runs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
import transformers
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from selected import mostly_slow
from torch.nn.functional import logsigmoid

from families import parity
from families.cases import FAMILIES
from families.devices import on_eight_devices
from families.test_sft import save_tokenizer
from families.weaving import LIBRARY, batch_of, woven, write
from generator.checkpoint.loading import load_package
from generator.weaver import weave

MODULES = (
    "checkpoint",
    "checkpoints",
    "config",
    "data",
    "huggingface",
    "model",
    "parallel",
    "preferences",
    "reference",
    "step",
    "trainer",
)
BETA = 0.3
MARGIN = 0.7


def say(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


ROWS = [
    {
        "prompt": [say("user", f"{i}?")],
        "chosen": [say("assistant", "yes " * (i % 4 + 1))],
        "rejected": [say("assistant", f"no {i}" * (i % 3 + 1))],
    }
    for i in range(30)
]


@pytest.fixture(scope="module", params=["llama2", "mixtral"])
def tuned(request, tmp_path_factory) -> tuple[SimpleNamespace, Path, list[torch.nn.Module]]:
    """A package, the policy and the reference in transformers, and pairs with the reference's log-likelihoods."""
    folder, family, models = tmp_path_factory.mktemp(request.param), FAMILIES[request.param], []
    settings = family.settings | dict(vocab_size=260) | next(iter(family.cases.values())).settings
    config = getattr(transformers, family.config)(**settings, attn_implementation="eager", dtype="float32")
    for name in "policy", "reference":
        models.append(parity.make_reference(getattr(transformers, family.model), config))
        with torch.no_grad():  # of each parameter, a little apart
            for parameter in models[-1].parameters():
                parameter.add_(0.02 * len(models) * torch.randn_like(parameter))
        models[-1].save_pretrained(folder / name)
        save_tokenizer(folder / name)
    path = write(weave(request.param, "cpu", LIBRARY, parts=("formats", "preferences")), folder)
    package = load_package(path, MODULES)
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    tokenizer = str(folder / "policy/tokenizer.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)  # for the worker
        package.data.prepare(str(folder / "pairs.jsonl"), str(folder / "pairs"), tokenizer, workers=1)
    for name in "policy", "reference":
        package.checkpoint.import_hf(str(folder / name), str(folder / f"{name}_run"))
        out = str(folder / f"of_{name}")
        package.reference.write_reference(
            str(folder / f"{name}_run"), str(folder / "pairs"), out, 4, sequence_length=256
        )
    return package, folder, models


def settings(folder: Path, **more: object) -> dict[str, object]:
    found = dict(data=str(folder / "of_reference"), tokenizer=str(folder / "policy/tokenizer.json"), batch_size=4)
    found |= dict(sequence_length=256, accumulation=2, eval_share=0.0, preference_beta=BETA, learning_rate=1e-3)
    found |= dict(preference_margin=MARGIN)
    return found | more


def make_batches(package: SimpleNamespace, config) -> object:
    return package.data.Batches(config, NamedSharding(package.parallel.make_mesh(1, 1, 1), PartitionSpec()))


def read_pairs(folder: Path) -> list[list[tuple[list[int], int]]]:
    """The chosen and the rejected tokens of each row, and where the answer begins, as transformers has them."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "policy/tokenizer.json"),
        chat_template=(folder / "policy/chat_template.jinja").read_text(),
    )
    options = dict(return_dict=False)
    return [
        [
            (
                tokenizer.apply_chat_template(row["prompt"] + row[name], **options),
                len(tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, **options)),
            )
            for name in ("chosen", "rejected")
        ]
        for row in ROWS
    ]


def pairs_in(batch: dict[str, np.ndarray], pairs: list) -> list:
    """The pairs that a batch holds, each checked to be two segments with weights on the answers."""
    known, found = {tuple(pair[0][0]): pair for pair in pairs}, []
    for row in ({name: values[i] for name, values in batch.items()} for i in range(len(batch["tokens"]))):
        segments = []
        for segment in range(1, row["segment_ids"].max() + 1):
            within = row["segment_ids"] == segment
            tokens = int(row["tokens"][within][0]), *map(int, row["targets"][within])
            segments.append((tokens, row["weights"][within].tolist()))
        for chosen, rejected in zip(segments[::2], segments[1::2], strict=True):
            found.append(known[chosen[0]])
            for (tokens, weights), (ids, start) in zip((chosen, rejected), found[-1], strict=True):
                assert (list(tokens), weights) == (ids, [0.0] * (start - 1) + [1.0] * (len(ids) - start))
    return found


def log_likelihood(model: torch.nn.Module, ids: list[int], start: int) -> torch.Tensor:
    """Of the answer's tokens."""
    logits = model(torch.tensor([ids]), use_cache=False).logits[0, start - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids[start:])[:, None]).sum()


def loss_in_torch(objective: str, policy, reference, pairs: list) -> tuple[torch.Tensor, dict[str, float]]:
    """The mean loss of pairs, and what is told of them."""
    losses, rewards = [], []
    for pair in pairs:
        sizes = [len(ids) - start for ids, start in pair]
        chosen, rejected = (log_likelihood(policy, *answer) for answer in pair)
        with torch.no_grad():
            first, second = (log_likelihood(reference, *answer) for answer in pair)
        if objective == "simpo":
            chosen, rejected = chosen / sizes[0], rejected / sizes[1]
            losses.append(-logsigmoid(BETA * (chosen - rejected) - MARGIN))
        elif objective == "orpo":
            chosen, rejected = chosen / sizes[0], rejected / sizes[1]
            log_odds = (chosen - rejected) - (torch.log1p(-chosen.exp()) - torch.log1p(-rejected.exp()))
            losses.append(-chosen - BETA * logsigmoid(log_odds))
        else:
            chosen, rejected = chosen - first, rejected - second
            if objective != "dpo":
                chosen, rejected = chosen / sizes[0], rejected / sizes[1]
            margin = chosen - rejected
            losses.append((margin - 1 / (2 * BETA)) ** 2 if objective == "ipo" else -logsigmoid(BETA * margin))
        rewards.append([BETA * chosen.item(), BETA * rejected.item()])
    chosen, rejected = np.array(rewards).T
    told = {
        "chosen_reward": chosen.mean(),
        "margin": (chosen - rejected).mean(),
        "accuracy": (chosen > rejected).mean(),
    }
    return torch.stack(losses).mean(), told


# what is made of log-likelihoods does not ask which model gives them
OBJECTIVES = [*(("llama2", objective) for objective in ("dpo", "dpo_norm", "ipo", "orpo", "simpo")), ("mixtral", "dpo")]


@pytest.mark.parametrize(
    ("tuned", "objective"), mostly_slow(OBJECTIVES, ("llama2", "dpo"), ("llama2", "simpo")), indirect=["tuned"]
)
def test_losses_and_gradients_are_those_of_formulas_in_torch(tuned, objective):
    package, folder, (policy, reference) = tuned
    config, model = package.huggingface.load_hf(folder / "policy")
    alone = {name: 0.0 for name in ("load_balance", "router_z") if hasattr(config, name)}
    config = dataclasses.replace(config, **settings(folder, objective=objective), **alone)
    batch = next(make_batches(package, config))
    pairs = pairs_in(batch, read_pairs(folder))
    assert len(pairs) > 2 * len(batch["tokens"])
    policy.zero_grad()
    expected, told = loss_in_torch(objective, policy, reference, pairs)
    expected.backward()
    theirs = parity.saved_gradients(policy, folder / "gradients")
    gradients, sums = jax.jit(jax.grad(lambda x: package.step.loss(x, batch, config), has_aux=True))(model)
    assert sums["targets"] == len(pairs)
    arrays = {name: np.asarray(x) / len(pairs) for name, x in package.parallel.named_arrays(gradients).items()}
    ours = package.huggingface.hf_views(arrays, config)
    for name in theirs:
        assert np.linalg.norm(ours[name] - theirs[name]) < 1e-5 * np.linalg.norm(theirs[name]), name
    norm = np.sqrt(sum(np.sum(np.square(x, dtype=np.float64)) for x in theirs.values()))
    _, metrics = jax.jit(package.step.train_step, static_argnums=2)(
        package.step.new_state(config, model), batch, config
    )
    told |= {"loss": expected.item(), "gradient_norm": norm}
    np.testing.assert_allclose(
        [float(metrics[f"train/{name}"]) for name in told], [*told.values()], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("tuned", ["llama2"], indirect=True)
def test_a_resumed_run_is_the_same_to_the_bit(tuned):
    """Evaluated on pairs that are held out; other log-likelihoods are other data."""
    package, folder, _ = tuned
    whole, resumed = folder / "policy_run", folder / "resumed"
    config = package.huggingface.load_hf(folder / "policy")[0]
    more = dict(checkpoint_dir=str(whole), steps=6, checkpoint_every=3, eval_every=3, objective="dpo", eval_share=0.2)
    config = dataclasses.replace(config, **settings(folder, **more))
    package.trainer.train(config)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "6")
    config = dataclasses.replace(config, checkpoint_dir=str(resumed))
    with pytest.raises(
        package.trainer.InputError, match=r"--z-loss 0\.1: is one of tokens, .* --objective dpo: give 0"
    ):
        package.trainer.train(dataclasses.replace(config, z_loss=0.1))
    with pytest.raises(package.trainer.InputError, match="not what this run had up to 3"):
        package.trainer.train(dataclasses.replace(config, data=str(folder / "of_policy")))
    package.trainer.train(config)
    mesh = package.parallel.make_mesh(1, 1, 1)
    first, again = (jax.tree.leaves(package.checkpoints.load_checkpoint(str(x), mesh)[1]) for x in (whole, resumed))
    for ours, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    told = []
    for run in whole, resumed:
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        names = "eval/loss", "eval/accuracy"
        told.append([[record[name] for record in records if name in record] for name in names])
    losses, accuracies = told[0]
    assert told[0] == told[1] and losses == sorted(losses, reverse=True) and len(losses) == 3 and accuracies[-1] > 0.9


@pytest.mark.parametrize("tuned", ["llama2"], indirect=True)
def test_rows_of_parquet_are_those_of_jsonl(tuned):
    """With whole chats, a text that is the prompt too and `messages`, as in published sets; null rows are left out."""
    package, folder, _ = tuned
    rows = [row | {name: row["prompt"] + row[name] for name in ("chosen", "rejected")} for row in ROWS]
    rows = [row | {"prompt": row["prompt"][0]["content"], "messages": row["chosen"], "score": 1.0} for row in rows]
    tables = {"whole": rows, "apart": ROWS}
    for name, found in tables.items():
        nothing = dict.fromkeys(found[0])
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([*found, nothing]), folder / f"{name}.parquet")
    config = package.huggingface.load_hf(folder / "policy")[0]
    config = dataclasses.replace(config, **settings(folder, objective="orpo"))
    batches = [
        next(make_batches(package, dataclasses.replace(config, data=str(folder / name))))
        for name in ("pairs.jsonl", "whole.parquet", "apart.parquet")
    ]
    for other in batches[1:]:
        for name, values in batches[0].items():
            np.testing.assert_array_equal(values, other[name])


def compare_meshes(package: SimpleNamespace) -> None:
    """The loss, its gradient and what is told of two pairs in each of 8 rows, on each mesh and on one device."""
    sizes = dict(vocab_size=264, heads=8, kv_heads=8, head_size=4, layers=2, batch_size=8, accumulation=1)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes, dtype="float32", preference_beta=BETA)
    rng = np.random.default_rng(0)
    batch = batch_of(rng.integers(0, 256, (8, 33), dtype=np.int32), [5, 4, 8, 7])
    batch["weights"] *= (batch["positions"] > 1).astype(np.float32)
    batch["reference"] = -rng.exponential(7, (8, 32)).astype(np.float32)
    batch["answers"] = np.array([0, 3, 5, 4, 5], np.int32)[batch["segment_ids"]]
    model = package.model.Decoder(config, nnx.Rngs(0))
    for objective in "dpo", "orpo", "kto":
        changed = dataclasses.replace(config, objective=objective)
        value = jax.value_and_grad(
            lambda model, batch, config=changed: package.step.loss(model, batch, config), has_aux=True
        )
        (loss, sums), gradient = jax.jit(value)(model, batch)
        assert sums["targets"] == 16
        for axes in {"fsdp": 8}, {"data": 2, "fsdp": 2, "tensor": 2}, {"fsdp": 2, "context": 4}:
            mesh = package.parallel.make_mesh(**{"data": 1, "fsdp": 1, "tensor": 1} | axes)
            rules = package.parallel.RULES
            with jax.set_mesh(mesh):
                layout = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
                sharded = jax.device_put(model, jax.tree.map(lambda x: x.sharding, layout))
                rows = NamedSharding(mesh, PartitionSpec(rules["batch"], rules["sequence"]))
                (ours, found), theirs = jax.jit(value)(sharded, jax.device_put(batch, rows))
            told = sums["objective"]
            # margins are a difference of two of these
            score = BETA * told["kl"] if objective == "kto" else told["chosen_reward"]
            assert score != 0
            scales = sums | {"objective": told | {"margin": score}}
            same = (ours, found, theirs), (loss, sums, gradient), (loss, scales, gradient)
            for one, other, scale in zip(*map(jax.tree.leaves, same), strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * jnp.abs(scale).max())
            print(objective, axes)


@pytest.mark.slow
def test_any_mesh_gives_what_one_device_gives(tmp_path):
    assert len(on_eight_devices(compare_meshes, woven("llama2", "cpu", tmp_path))) == 9
