"""Supervised fine-tuning of imported weights on chats, against a loop in torch; and of adapters alone."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch
import transformers
from jax.sharding import NamedSharding, PartitionSpec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from families import parity
from families.cases import FAMILIES
from families.weaving import LIBRARY, write
from generator.checkpoint.loading import load_package
from generator.weaver import weave

STEPS = 20
CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def save_tokenizer(folder: Path) -> None:
    """Saves a tokenizer of bytes with a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({name: i for i, name in enumerate(alphabet)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (folder / "chat_template.jinja").write_text(CHATML)


@pytest.fixture(scope="module")
def tuned(request, tmp_path_factory) -> tuple[SimpleNamespace, Path]:
    """A package, a random checkpoint of transformers with a tokenizer and a chat template, and chats."""
    folder, family = tmp_path_factory.mktemp("tuned"), FAMILIES["llama2"]
    settings = family.settings | dict(vocab_size=260)
    config = transformers.LlamaConfig(**settings, attn_implementation="eager", dtype="float32")
    parity.make_reference(transformers.LlamaForCausalLM, config).save_pretrained(folder / "hf")
    save_tokenizer(folder / "hf")
    rows = []
    for i in range(40):
        turns = [("user", f"{i}?"), ("assistant", f"{i} " * (i % 5 + 1)), ("user", "and?"), ("assistant", "no")]
        messages = [{"role": role, "content": text} for role, text in turns]
        rows.append(json.dumps({"messages": [*messages[:3], messages[3] | {"weight": 0.5}]}))
    (folder / "chats.jsonl").write_text("\n".join(rows))
    path = write(weave("llama2", "cpu", LIBRARY, parts=("chat_data", *request.param)), folder)
    return load_package(path, ("checkpoint", "data", "huggingface", "parallel", "step", "trainer")), folder


def settings(folder: Path, **more: object) -> dict[str, object]:
    found = dict(data=str(folder / "chats.jsonl"), tokenizer=str(folder / "hf/tokenizer.json"), batch_size=4)
    found |= dict(sequence_length=128, steps=STEPS, learning_rate=3e-3, eval_share=0.0, accumulation=2)
    return found | more


def train_in_torch(
    reference: torch.nn.Module, batches: list[dict[str, np.ndarray]], config
) -> list[tuple[float, float]]:
    """Loss and gradient norm of steps on the batches, each weighted by the weights of its targets."""
    groups = [[p for p in reference.parameters() if (p.ndim > 1) == decays] for decays in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": config.weight_decay}, {"params": groups[1], "weight_decay": 0.0}],
        betas=(config.adam_b1, config.adam_b2),
        eps=config.adam_epsilon,
    )
    warmup, found = int(np.ceil(config.warmup_ratio * STEPS)), []
    for step, batch in enumerate(batches, 1):
        share = (step - warmup) / (STEPS - warmup)
        cosine = config.final_ratio + (1 - config.final_ratio) * (1 + np.cos(np.pi * share)) / 2
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * cosine
        ids = torch.from_numpy(batch["segment_ids"])
        seen = torch.tril(ids[:, :, None] == ids[:, None])[:, None]
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        tokens, targets, places = (torch.from_numpy(batch[x]).long() for x in ("tokens", "targets", "positions"))
        logits = reference(tokens, attention_mask=mask, position_ids=places, use_cache=False).logits
        scores = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        weights = torch.from_numpy(batch["weights"]).flatten()
        loss = (scores * weights).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), config.max_gradient_norm)
        optimizer.step()
        found.append((loss.item(), norm.item()))
    return found


@pytest.mark.parametrize("tuned", [()], indirect=True)
def test_losses_are_those_of_a_loop_in_torch(tuned):
    package, folder = tuned
    config, model = package.huggingface.load_hf(folder / "hf")
    config = dataclasses.replace(config, **settings(folder))
    data = package.data.Batches(config, NamedSharding(package.parallel.make_mesh(1, 1, 1), PartitionSpec()))
    batches = [next(data) for _ in range(STEPS)]
    assert {0.0, 0.5, 1.0} == {*np.unique(batches[0]["weights"])} and batches[0]["segment_ids"].max() > 1
    state, step, found = (
        package.step.new_state(config, model),
        jax.jit(functools.partial(package.step.train_step, config=config)),
        [],
    )
    for batch in batches:
        state, metrics = step(state, batch)
        found.append((float(metrics["train/loss"]), float(metrics["train/gradient_norm"])))
    reference = transformers.LlamaForCausalLM.from_pretrained(folder / "hf", attn_implementation="eager")
    np.testing.assert_allclose(found, train_in_torch(reference, batches, config), rtol=1e-4)
    assert found[-1][0] < found[0][0] - 1


@pytest.mark.parametrize("tuned", [(), ("lora",)], indirect=True)
def test_imported_weights_are_tuned_by_the_command(tuned):
    """Full, or adapters alone; the run keeps the template for the server, and resumes."""
    package, folder = tuned
    run = folder / "run"
    package.checkpoint.import_hf(str(folder / "hf"), str(run))
    config = dataclasses.replace(package.huggingface.load_hf(folder / "hf")[0], checkpoint_dir=str(run))
    more = settings(folder, steps=10, eval_share=0.1, eval_every=5, learning_rate=1e-2)
    package.trainer.train(dataclasses.replace(config, **more))
    package.trainer.train(dataclasses.replace(config, **more | dict(steps=12)))
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    told = [record["eval/loss"] for record in records if "eval/loss" in record]
    assert len(told) >= 3 and told[-1] < told[0] - 0.5  # the first one is of the imported weights
    assert (run / "tokenizer/chat_template.jinja").read_text() == CHATML
