"""Preference optimization of adapters: the model without them as the reference, which no data holds."""

import dataclasses
import json

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import requires
from generator.language.roles import (
    PRESETS,
    Batches,
    Decoder,
    InputError,
    adapters_of,
    check_objective,
    eval_step,
    make_mesh,
    named_arrays,
    new_state,
    target_log_likelihoods,
    train,
    train_step,
    with_adapters,
)

requires("adapter_reference")

ROWS = [{"prompt": f"{i} + 1 =", "chosen": f" {i + 1}", "rejected": " no" * (i % 3 + 1)} for i in range(40)]


@pytest.fixture
def config(tmp_path):
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    settings = dict(dtype="float32", data=str(tmp_path / "pairs.jsonl"), eval_share=0.0, sequence_length=64)
    settings |= {name: 0.0 for name in ("load_balance", "router_z", "mtp_loss_weight")}
    settings |= dict(batch_size=4, checkpoint_dir=str(tmp_path / "run"))
    known = {name: value for name, value in settings.items() if hasattr(PRESETS["tiny"], name)}
    return dataclasses.replace(PRESETS["tiny"], **known, reference_without_adapters=True)


@pytest.mark.parametrize("objective", ["dpo", "ipo"])
def test_losses_and_gradients_are_those_of_a_stored_reference(config, objective):
    """That of adapters which add nothing, as new ones do."""
    config = dataclasses.replace(config, objective=objective, accumulation=2, adam_b1=0.0)
    batch = next(Batches(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec())))
    assert "reference" not in batch
    model = jax.jit(lambda: Decoder(config, nnx.Rngs(0)))()
    draw = np.random.default_rng(0)
    moved = jax.tree.map(lambda x: np.float32(draw.normal(0, 0.1, x.shape)), adapters_of(model))
    reference = jax.jit(lambda model: target_log_likelihoods(model, batch, config))(model)

    def step(batch, config):
        """The metrics of a step, the gradients of which its first moments are, and the sums of an evaluation."""
        state = new_state(config, with_adapters(model, moved))
        trained, metrics = jax.jit(train_step, static_argnums=2)(state, batch, config)
        moments = {name: x for name, x in named_arrays(trained.opt_state).items() if ".mu." in name}
        return metrics, moments, jax.jit(eval_step, static_argnums=2)(state.model, batch, config)

    stored = dataclasses.replace(config, reference_without_adapters=False)
    metrics, gradients, sums = step(batch, config)
    wanted, wanted_gradients, wanted_sums = step(batch | {"reference": np.asarray(reference)}, stored)
    assert abs(metrics["train/margin"]) > 1e-3
    for ours, theirs in (metrics, wanted), (sums, wanted_sums):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), ours, theirs)
    difference = jax.tree.map(np.subtract, gradients, wanted_gradients)
    assert optax.tree.norm(difference) < 1e-5 * optax.tree.norm(wanted_gradients)


def test_a_run_needs_no_reference_in_its_data(config, tmp_path):
    problem = r"has no log-likelihoods of a reference.* or give --reference-without-adapters"
    with pytest.raises(InputError, match=problem):
        train(dataclasses.replace(config, objective="dpo", reference_without_adapters=False, steps=1))
    train(dataclasses.replace(config, objective="dpo", steps=2, eval_share=0.2, eval_every=1))
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    first = next(line for line in lines if "train/loss" in line)
    assert first["train/loss"] == pytest.approx(np.log(2)) and first["train/accuracy"] == 0  # equal policies
    with pytest.raises(InputError, match="--objective orpo has no reference: leave it out"):
        check_objective(dataclasses.replace(config, objective="orpo"))
