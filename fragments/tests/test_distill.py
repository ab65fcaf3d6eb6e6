"""Distillation from stored tokens of a teacher: what is written and read, and the loss against formulas in torch."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from torch.nn.functional import kl_div

from generator.language import requires
from generator.language.roles import (
    CHAT_FORMS,
    SMALL,
    Batches,
    Checkpoints,
    Decoder,
    InputError,
    abstract_batch,
    distill_loss,
    load_tokenizer,
    loss,
    make_mesh,
    run_prepare,
    save_chat_tokenizer,
    train,
    write_teacher,
)

requires("distill/distill")

AUXILIARY = {
    f.name: 0.0 for f in dataclasses.fields(SMALL) if f.name in ("load_balance", "router_z", "mtp_loss_weight")
}


@pytest.fixture
def config(tmp_path):
    """Returns settings with chats and texts, with the five likeliest tokens of a teacher at a temperature of 2."""
    tokenizer = save_chat_tokenizer(tmp_path / "tokenizer", CHAT_FORMS["chatml"])
    chats = [{"prompt": f"{i}?", "completion": "yes " * (i % 4 + 1)} for i in range(20)]
    sources = {"chats": chats, "texts": [{"text": "ab" * size} for size in (2, 3, 60)]}
    mixture = ",".join(f"1:{tmp_path}/taught_{name}" for name in sources)
    fields = dict(
        tokenizer=tokenizer, vocab_size=480, eval_share=0.0, init_std=0.3, distill_temperature=2.0, data=mixture
    )
    config = dataclasses.replace(SMALL, **fields, **AUXILIARY, objective="distill")
    teacher = Checkpoints(tmp_path / "teacher", dataclasses.replace(config, objective="next_token")).open()
    teacher.save(0, {"model": model_of(config, 1)})
    teacher.close()
    for name, rows in sources.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        ended = run_prepare(tmp_path / f"{name}.jsonl", tmp_path / name, "--tokenizer", tokenizer, "--workers=1")
        assert ended.returncode == 0, ended.stderr
        out = str(tmp_path / f"taught_{name}")
        write_teacher(str(tmp_path / "teacher"), str(tmp_path / name), out, top_k=5, temperature=2.0, batch_size=2)
    return config


def model_of(config, seed: int) -> Decoder:
    return jax.jit(lambda: Decoder(config, nnx.Rngs(seed)))()


def logits_of(model: Decoder, batch) -> np.ndarray:
    """Returns the logits of a packed batch [B, T, V]."""
    inputs = {name: batch[name] for name in ("tokens", "positions", "segment_ids")}
    return np.asarray(jax.jit(lambda model: model(**inputs))(model), np.float64)


def read_batch(config) -> dict[str, np.ndarray]:
    batch = next(Batches(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec())))
    wanted = abstract_batch(config, make_mesh(1, 1, 1))
    assert {name: (x.shape, x.dtype) for name, x in batch.items()} == {
        name: (x.shape, x.dtype) for name, x in wanted.items()
    }
    return batch


def divergence(teacher: torch.Tensor, student: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    """Returns the divergence of log-probabilities [B, T, V] over the top tokens and all others as one."""

    def with_rest(logprobs):
        known = logprobs.gather(-1, top)
        return torch.cat([known, torch.log1p(-known.exp().sum(-1, keepdim=True))], dim=-1)

    return kl_div(with_rest(student), with_rest(teacher), log_target=True, reduction="none").sum(-1)


@pytest.mark.parametrize("chunk", [10**9, 3000])
def test_the_loss_is_the_divergence_from_the_teacher(config, chunk):
    """Of packed documents, in fp64 from the logits of both; in chunks of tokens too, with the same gradient."""
    config = dataclasses.replace(config, logits_per_chunk=chunk)
    batch = read_batch(config)
    assert batch["segment_ids"].max() > 1 and 0 < batch["weights"].mean() < 1
    teacher, student = (torch.tensor(logits_of(model_of(config, seed), batch)) for seed in (1, 2))
    teacher = (teacher / 2).log_softmax(-1)
    known = load_tokenizer(config.tokenizer).vocab_size  # of 480 rows: a student may have fewer
    top = teacher[..., :known].topk(5)
    assert (teacher.topk(5).indices >= known).any()
    weights = torch.tensor(batch["weights"], dtype=torch.float64)
    is_counted = batch["segment_ids"] > 0
    np.testing.assert_allclose(batch["top_logprobs"][is_counted], top.values.numpy()[is_counted], atol=1e-4)
    student.requires_grad_()
    wanted = 4 * (weights * divergence(teacher, (student / 2).log_softmax(-1), top.indices)).sum()
    total, sums = jax.jit(lambda model: loss(model, batch, config))(model_of(config, 2))
    np.testing.assert_allclose(total, wanted.item(), rtol=1e-5)
    assert sums["targets"] == batch["weights"].sum()


def log_softmax(x: np.ndarray) -> np.ndarray:
    return torch.tensor(x).log_softmax(-1).numpy()


@pytest.mark.parametrize("top_k", [1, 5, 40])
def test_loss_and_gradient_are_those_of_torch(top_k):
    """With all tokens of the vocabulary, of 40, it is the whole divergence."""
    draw = np.random.default_rng(0)
    teacher, student = (log_softmax(draw.normal(0, 2, (2, 3, 40))) for _ in range(2))
    weights = draw.random((2, 3)).astype(np.float32)
    top = torch.tensor(teacher).topk(top_k)
    batch = {"top_logprobs": jnp.float32(top.values.numpy()), "weights": weights}
    config = dataclasses.replace(SMALL, distill_temperature=3.0)

    def ours(logits):
        return distill_loss(
            jnp.take_along_axis(jax.nn.log_softmax(logits), top.indices.numpy(), axis=-1), batch, config
        )[0]

    logits = torch.tensor(student, requires_grad=True)
    if top_k == 40:
        each = kl_div(logits.log_softmax(-1), torch.tensor(teacher), log_target=True, reduction="none").sum(-1)
    else:
        each = divergence(torch.tensor(teacher), logits.log_softmax(-1), top.indices)
    wanted = 9 * (each * torch.tensor(weights)).sum()
    wanted.backward()
    value, gradient = jax.value_and_grad(ours)(jnp.float32(student))
    np.testing.assert_allclose(value, wanted.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, logits.grad, atol=1e-5)


def test_a_model_learns_from_its_teacher(config, tmp_path):
    config = dataclasses.replace(config, checkpoint_dir=str(tmp_path / "run"), learning_rate=1e-2, steps=30)
    train(config)
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert 0 < losses[-1] < 0.7 * losses[0]


def test_data_without_a_teacher_is_refused(config, tmp_path):
    def refused(**changed) -> str:
        with pytest.raises(InputError) as caught:
            train(dataclasses.replace(config, **changed))
        return str(caught.value)

    prepared = str(tmp_path / "chats")
    told = refused(data=prepared)
    assert (
        f"data {prepared}: has no log-probabilities of a teacher" in told and "teacher_logits --checkpoint-dir" in told
    )
    assert "--distill-temperature 1.0: data" in refused(distill_temperature=1.0)
    with pytest.raises(InputError, match=r"--out .*: already exists"):
        write_teacher(str(tmp_path / "teacher"), prepared, str(tmp_path / "texts"))
    with pytest.raises(InputError, match="--sequence-length 0: must be"):
        write_teacher(str(tmp_path / "teacher"), prepared, str(tmp_path / "new"), sequence_length=0)
    with pytest.raises(
        InputError, match=r"--top-k 401 --temperature 1.0: must be from 1 to the tokenizer's 400 tokens"
    ):
        write_teacher(str(tmp_path / "teacher"), prepared, str(tmp_path / "new"), top_k=401)
    with pytest.raises(InputError, match="must be texts or chats that `data prepare` wrote"):
        write_teacher(str(tmp_path / "teacher"), str(tmp_path / "taught_chats"), str(tmp_path / "new"))


@pytest.mark.parametrize("left", [["tokens.half"], ["tokens-0123abcd", "prepared.half"]])
def test_a_folder_that_a_killed_writer_left_is_written_anew(config, tmp_path, left):
    out = tmp_path / "left"
    out.mkdir()
    for name in left:
        (out / name).write_text("half")
    write_teacher(str(tmp_path / "teacher"), str(tmp_path / "chats"), str(out), top_k=5, temperature=2.0, batch_size=2)
    same = tmp_path / "taught_chats"
    assert {x.name: x.read_bytes() for x in out.iterdir()} == {x.name: x.read_bytes() for x in same.iterdir()}
