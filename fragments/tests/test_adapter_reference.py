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
    loss,
    make_mesh,
    target_log_likelihoods,
    train,
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
    config = dataclasses.replace(config, objective=objective)
    batch = next(Batches(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec())))
    assert "reference" not in batch
    model = jax.jit(lambda: Decoder(config, nnx.Rngs(0)))()
    draw = np.random.default_rng(0)
    moved = jax.tree.map(lambda x: np.float32(draw.normal(0, 0.1, x.shape)), adapters_of(model))
    reference = jax.jit(lambda model: target_log_likelihoods(model, batch, config))(model)

    def gradients(batch, config):
        passed = lambda adapters: loss(with_adapters(model, adapters), batch, config)  # noqa: E731
        return jax.jit(jax.value_and_grad(passed, has_aux=True))(moved)

    stored = dataclasses.replace(config, reference_without_adapters=False)
    (total, sums), gradient = gradients(batch, config)
    (wanted, wanted_sums), wanted_gradient = gradients(batch | {"reference": np.asarray(reference)}, stored)
    assert abs(sums["objective"]["margin"]) > 0.01
    np.testing.assert_allclose(total, wanted, rtol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), sums, wanted_sums)
    difference = jax.tree.map(np.subtract, gradient, wanted_gradient)
    assert optax.tree.norm(difference) < 1e-5 * optax.tree.norm(wanted_gradient)


def test_a_run_needs_no_reference_in_its_data(config, tmp_path):
    with pytest.raises(InputError, match="has no log-likelihoods of a reference"):
        train(dataclasses.replace(config, objective="dpo", reference_without_adapters=False, steps=1))
    train(dataclasses.replace(config, objective="dpo", steps=2, eval_share=0.2, eval_every=1))
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    first = next(line for line in lines if "train/loss" in line)
    assert first["train/loss"] == pytest.approx(np.log(2)) and first["train/accuracy"] == 0  # equal policies
    with pytest.raises(InputError, match="--objective orpo has no reference: leave it out"):
        check_objective(dataclasses.replace(config, objective="orpo"))
