"""The step against independent arithmetic: torch's loss, large batches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

from generator.language import point
from generator.language.roles import (
    SMALL,
    Decoder,
    InputError,
    ModelConfig,
    arrays,
    check_config,
    forward,
    loss,
    named_arrays,
    random_batch,
    state_for,
    train_step,
    with_matrices_in,
)

loss_of = jax.jit(loss, static_argnums=2)


@pytest.fixture(scope="module")
def batch():
    return random_batch(SMALL)


def test_loss_is_that_of_torch(batch):
    """What a model adds to the cross-entropy, such as its load balance, does not depend on the targets."""
    config = SMALL
    point("test_train.added", config)
    model = jax.tree.map(lambda x: 3 * x, state_for(config).model)
    logits = np.array(forward(model, batch["tokens"], batch["positions"], batch["segment_ids"]))
    added = []
    for targets in batch["targets"], logits.argmax(axis=-1), logits.argmin(axis=-1):
        total, metrics = loss_of(model, batch | {"targets": targets}, config)
        each = torch.nn.functional.cross_entropy(
            torch.tensor(logits).mT, torch.tensor(targets).long(), reduction="none"
        )
        np.testing.assert_allclose(metrics["cross_entropy"], (each * torch.tensor(batch["weights"])).sum(), rtol=1e-5)
        added.append(total - metrics["cross_entropy"])
    np.testing.assert_allclose(added, added[0], atol=1e-5 * total)
    assert metrics["targets"] == batch["weights"].sum()


def test_gradients_of_matrices_are_summed_in_fp32(batch):
    """Products are in bf16: a gradient rounded on the way would hold only bf16 numbers."""
    point("test_train.precision")
    config = dataclasses.replace(SMALL, dtype="bfloat16")
    gradients = jax.jit(jax.grad(lambda model: loss(model, batch, config)[0]))(state_for(config).model)
    for name, gradient in named_arrays(gradients).items():
        numbers = gradient[gradient != 0]  # none if an adapter starts at zero
        rounded = (numbers == numbers.astype("bfloat16")).mean()
        if "experts" in name:
            continue  # a device rounds sums over its rows, and adds those of others in fp32
        assert not rounded == 1, name  # in an embedding, a token that comes once has one summand
        assert not (name.endswith("kernel") and rounded > 0.05), (name, rounded)


def test_gradients_can_be_summed_in_bf16():
    names = named_arrays(with_matrices_in("bfloat16", state_for(SMALL).model))
    kinds = {name.rpartition(".")[2]: str(x.dtype) for name, x in names.items() if "router" not in name}
    assert kinds.pop("kernel") == kinds.pop("table") == "bfloat16"
    assert {kind for name, kind in kinds.items() if "bias" in name or name in ("scale", "sinks")} <= {"float32"}
    wrong = dataclasses.replace(SMALL, gradient_dtype="bfloat16")
    with pytest.raises(InputError, match="--gradient-dtype bfloat16: would round the parameters: give --dtype"):
        check_config(wrong)


@pytest.mark.parametrize("accumulation", [2, 4])
def test_accumulation_equals_the_large_batch(batch, accumulation):
    config = SMALL
    point("test_train.accumulated", config)
    step = jax.jit(train_step, static_argnums=2)
    divided = dataclasses.replace(config, accumulation=accumulation)
    whole, metrics = step(state_for(config), batch, config)
    parts, metrics_of_parts = step(state_for(divided), batch, divided)
    np.testing.assert_allclose(metrics["train/loss"], metrics_of_parts["train/loss"], rtol=1e-6)
    np.testing.assert_allclose(metrics["train/gradient_norm"], metrics_of_parts["train/gradient_norm"], rtol=1e-5)
    # moments, compared before Adam's division blows up the rounding of small ones
    for (name, a), b in zip(arrays(whole.opt_state).items(), arrays(parts.opt_state).values()):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-8, err_msg=name)


def test_runs_of_one_model_have_one_pytree_type():
    """Whatever the settings of the run: a model holds only its own."""
    model = {field.name for field in dataclasses.fields(ModelConfig)}
    settings = {name: value for name, value in vars(SMALL).items() if name not in model}
    changed = {name: f"{value}x" if isinstance(value, str) else 2 * value for name, value in settings.items()}
    assert {"keep_last", "learning_rate", "batch_size", "mesh_data"} <= changed.keys()

    def structure(**changes):
        return jax.tree.structure(jax.eval_shape(lambda: Decoder(dataclasses.replace(SMALL, **changes), nnx.Rngs(0))))

    assert structure() == structure(**changed) != structure(remat="full")


def test_a_step_holds_the_activations_of_a_microbatch_alone(batch):
    config = dataclasses.replace(SMALL, accumulation=2)
    (B, T), D = batch["tokens"].shape, config.width
    trace = jax.make_jaxpr(train_step, static_argnums=2)
    whole, parts = (str(trace(state_for(it), batch, it)) for it in (SMALL, config))
    assert f"[{B},{T},{D}]" in whole and f"[{B // 2},{T},{D}]" in parts
    assert f"[{B},{T},{D}]" not in parts


def test_gradient_is_of_the_mean_over_targets(batch):
    """Rows differ in how many targets count: a mean of row means would give another gradient."""
    config = dataclasses.replace(SMALL, accumulation=4)
    point("test_train.mean", config)
    _, metrics = jax.jit(train_step, static_argnums=2)(state_for(config), batch, config)

    @jax.jit
    @jax.grad
    def gradient_of_the_mean(model):
        total, sums = loss(model, batch, config)
        return total / sums["targets"]

    gradient = gradient_of_the_mean(state_for(config).model)
    point("test_train.gradient", gradient)
    np.testing.assert_allclose(metrics["train/gradient_norm"], optax.tree.norm(gradient), rtol=1e-5)


def test_loss_falls_to_nothing_on_a_batch_learnt_by_heart(batch):
    config = dataclasses.replace(SMALL, steps=60, learning_rate=1e-2)
    step = jax.jit(functools.partial(train_step, config=config), donate_argnums=0)
    state = jax.tree.map(jnp.copy, state_for(config))
    point("test_train.by_heart", config, state)
    losses = []
    for _ in range(config.steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics["train/loss"]))
    assert losses[0] > np.log(config.vocab_size) - 0.1  # untrained; a tied head predicts the same token
    assert losses[-1] < 0.1
    assert int(state.step) == 60
