"""PPO against formulas in torch over models of transformers: values, advantages, losses and gradients."""

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
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from selected import mostly_slow

from families import parity
from families.cases import FAMILIES
from families.test_sft import save_tokenizer
from families.weaving import LIBRARY, write
from generator.checkpoint.loading import load_package
from generator.weaver import weave

MODULES = "config", "huggingface", "model", "parallel", "rollouts", "step"
DISCOUNT, LAMBDA, CLIP, COEFFICIENT = 0.9, 0.8, 0.3, 0.7
REWARD = """
def some(prompt, completion, counts):
    return sum(map(ord, completion)) % 10 / 3 if counts else None
"""


@pytest.fixture(scope="module", params=mostly_slow(["llama2", "mixtral"], "llama2"))
def tuned(request, tmp_path_factory) -> tuple[SimpleNamespace, Path, dict[str, torch.nn.Module]]:
    """A package, and two policies of transformers that are a little apart."""
    folder, family, models = tmp_path_factory.mktemp(request.param), FAMILIES[request.param], {}
    options = family.settings | dict(vocab_size=260) | next(iter(family.cases.values())).settings
    config = getattr(transformers, family.config)(**options, attn_implementation="eager", dtype="float32")
    package = load_package(write(weave(request.param, "cpu", LIBRARY, parts=("critic",)), folder), MODULES)
    for name in "sampling", "training":
        models[name] = parity.make_reference(getattr(transformers, family.model), config)
        with torch.no_grad():
            for parameter in models[name].parameters():
                parameter.add_(0.02 * len(models) * torch.randn_like(parameter))
        models[name].save_pretrained(folder / name)
        save_tokenizer(folder / name)
    rows = [{"prompt": "abc"[: i % 3 + 1] * (i + 1), "counts": i != 2} for i in range(4)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / f"rewards_of_{request.param}.py").write_text(REWARD)
    return package, folder, models


def pass_over(model: torch.nn.Module, head: torch.Tensor, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probabilities of tokens after the first one, and the values before them."""
    out = model(torch.tensor([tokens[:-1]]), output_hidden_states=True, use_cache=False)
    logprobs = out.logits[0].log_softmax(dim=1)
    return logprobs[range(len(tokens) - 1), tokens[1:]], (out.hidden_states[-1][0] @ head)[:, 0]


def with_head(model, head: torch.Tensor):
    model.value = nnx.Param(head.detach().numpy(), axes=model.value.axes)
    return model


def test_values_advantages_losses_and_gradients_are_those_of_formulas_in_torch(tuned, monkeypatch):
    """Of a rollout of two batches, two of whose completions have no reward, once the policy has moved."""
    package, folder, models = tuned
    monkeypatch.syspath_prepend(folder)
    config, sampling = package.huggingface.load_hf(folder / "sampling")
    _, training = package.huggingface.load_hf(folder / "training")
    assert not np.any(training.value)
    alone = {name: 0.0 for name in ("load_balance", "router_z") if hasattr(config, name)}
    (rewards,) = folder.glob("rewards_of_*.py")
    made = dict(data=str(folder / "prompts.jsonl"), reward=f"{rewards.stem}:some", group_size=2)
    made |= dict(batch_size=4, batches_per_rollout=2, accumulation=2, sequence_length=32, completion_tokens=7)
    made |= dict(discount=DISCOUNT, gae_lambda=LAMBDA, value_clip=CLIP, value_coefficient=COEFFICIENT)
    config = dataclasses.replace(config, objective="ppo", **made, **alone)
    heads = [(0.3 * torch.randn(config.width, 1)).requires_grad_() for _ in models]
    sampling, training = with_head(sampling, heads[0]), with_head(training, heads[1])

    rollouts = package.rollouts.Rollouts(config, NamedSharding(package.parallel.make_mesh(1, 1, 1), PartitionSpec()))
    rollouts.follow(lambda: sampling, lambda policy: None, None)
    batches = [next(rollouts), next(rollouts)]
    completions = list[dict]()
    for batch in batches:
        for row in range(len(batch["tokens"])):
            places = np.flatnonzero(batch["weights"][row])
            if not len(places):
                continue
            tokens = [*batch["tokens"][row, : places[-1] + 1].tolist(), int(batch["targets"][row, places[-1]])]
            with torch.no_grad():
                old, values = (x[places[0] :] for x in pass_over(models["sampling"], heads[0], tokens))
            written = tokens[places[0] + 1 :]
            text = rollouts.tokenizer.decode(written[:-1] if written[-1] in rollouts.ends else written)
            rewards = np.zeros(len(places))
            rewards[-1] = sum(map(ord, text)) % 10 / 3
            errors = rewards + DISCOUNT * np.append(values.numpy()[1:], 0) - values.numpy()
            decay = (DISCOUNT * LAMBDA) ** np.arange(len(errors))
            advantages = np.array([errors[t:] @ decay[: len(errors) - t] for t in range(len(errors))])
            completions.append(dict(batch=batch, row=row, places=places, tokens=tokens, old=old, values=values))
            completions[-1] |= dict(advantages=advantages, returns=advantages + values.numpy())
    assert len(completions) == 6
    every = np.concatenate([one["advantages"] for one in completions])
    for one in completions:
        there = {name: array[one["row"], one["places"]] for name, array in one["batch"].items()}
        expected = {"values": one["values"], "returns": one["returns"], "sampled_logprobs": one["old"]}
        one["scaled"] = expected["advantages"] = (one["advantages"] - every.mean()) / every.std()
        for name, array in expected.items():
            np.testing.assert_allclose(there[name], array, atol=1e-5, err_msg=name)

    batch, parts = batches[1], list[torch.Tensor]()
    clipped = 0
    models["training"].zero_grad()
    for one in (x for x in completions if x["batch"] is batch):
        new, values = (x[one["places"][0] :] for x in pass_over(models["training"], heads[1], one["tokens"]))
        advantages, returns = torch.tensor(one["scaled"]), torch.tensor(one["returns"])
        ratio = torch.exp(new - one["old"])
        gains = torch.minimum(ratio * advantages, ratio.clamp(1 - config.clip_low, 1 + config.clip_high) * advantages)
        near = one["values"] + (values - one["values"]).clamp(-CLIP, CLIP)
        errors = torch.maximum((values - returns) ** 2, (near - returns) ** 2)
        clipped += int(torch.sum(errors > (values - returns) ** 2))
        parts += [COEFFICIENT * errors / 2 - gains]
    losses = torch.cat(parts)
    assert 0 < clipped < len(losses)
    losses.mean().backward()
    theirs = parity.saved_gradients(models["training"], folder / "gradients")
    loss = jax.jit(jax.value_and_grad(lambda x: package.step.loss(x, batch, config), has_aux=True))
    (total, sums), gradient = loss(training)
    assert sums["targets"] == len(losses)
    np.testing.assert_allclose(total / len(losses), losses.mean().item(), rtol=1e-5)
    arrays = {name: np.asarray(x) / len(losses) for name, x in package.parallel.named_arrays(gradient).items()}
    ours = package.huggingface.hf_views(arrays, config) | {"value": arrays["value"]}
    theirs["value"] = heads[1].grad.numpy()
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert np.linalg.norm(ours[name] - theirs[name]) <= 1e-5 * np.linalg.norm(theirs[name]), name
    state = package.step.new_state(config, training)
    _, metrics = jax.jit(package.step.train_step, static_argnums=2)(state, batch, config)
    policy_loss = losses.mean().item() - COEFFICIENT * metrics["train/value_loss"]
    np.testing.assert_allclose(metrics["train/loss"], policy_loss, rtol=1e-4)
