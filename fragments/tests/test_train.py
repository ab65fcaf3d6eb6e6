"""The step against independent arithmetic: torch's loss and AdamW, large batches and schedules."""

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from generator.language import point
from generator.language.roles import (
    PACKAGE,
    PRESETS,
    SMALL,
    Config,
    TrainState,
    create_state,
    learning_rate,
    loss,
    make_mesh,
    make_optimizer,
    new_state,
    run_python,
    train_step,
)

loss_of = jax.jit(loss, static_argnums=2)


def random_batch(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Random tokens; row i counts for about i targets, so that microbatches count differently."""
    rng = np.random.default_rng(seed)
    shape = config.batch_size, config.sequence_length
    tokens = rng.integers(0, config.vocab_size, (shape[0], shape[1] + 1), dtype=np.int32)
    share = (np.arange(shape[0]) + 0.5)[:, None] / shape[0]
    return {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "positions": np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape),
        "segment_ids": np.ones(shape, np.int32),
        "weights": (rng.random(shape) < share).astype(np.float32),
    }


@functools.cache
def initial_arrays() -> list[jax.Array]:
    return jax.tree.leaves(jax.jit(new_state, static_argnums=0)(SMALL))


def state_for(config: Config) -> TrainState:
    """The same initial state for each config, made only once."""
    return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(lambda: new_state(config))), initial_arrays())


def arrays(tree) -> dict[str, np.ndarray]:
    """A copy of the leaves by path."""
    return {jax.tree_util.keystr(path): np.array(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.fixture(scope="module")
def batch():
    return random_batch(SMALL)


def test_loss_is_that_of_torch(batch):
    """What a model adds to the cross-entropy, such as a balance of its experts, does not depend on the targets."""
    config = SMALL
    point("test_train.added", config)
    model = jax.tree.map(lambda x: 3 * x, state_for(config).model)
    logits = np.array(model(batch["tokens"], batch["positions"], batch["segment_ids"]))
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


def test_z_loss_is_added_and_not_reported(batch):
    config = dataclasses.replace(SMALL, z_loss=0.1)
    model = state_for(config).model
    total, metrics = loss_of(model, batch, config)
    without, metrics_without = loss_of(model, batch, SMALL)
    logits = np.array(model(batch["tokens"], batch["positions"], batch["segment_ids"]), np.float64)
    z = (np.log(np.exp(logits).sum(-1)) ** 2 * batch["weights"]).sum()
    np.testing.assert_allclose(total - without, 0.1 * z, rtol=1e-4)
    np.testing.assert_allclose(metrics["cross_entropy"], metrics_without["cross_entropy"], rtol=1e-6)


@pytest.mark.parametrize("accumulation", [2, 4])
def test_accumulation_equals_the_large_batch(batch, accumulation):
    config = SMALL
    point("test_train.accumulated", config)
    whole, metrics = jax.jit(train_step)(state_for(config), batch)
    parts, metrics_of_parts = jax.jit(train_step)(
        state_for(dataclasses.replace(config, accumulation=accumulation)), batch
    )
    np.testing.assert_allclose(metrics["train/loss"], metrics_of_parts["train/loss"], rtol=1e-6)
    np.testing.assert_allclose(metrics["train/gradient_norm"], metrics_of_parts["train/gradient_norm"], rtol=1e-5)
    # the first moment is the gradient times 0.1: compared before Adam's division blows up the rounding of small ones
    for (name, a), b in zip(arrays(whole.opt_state).items(), arrays(parts.opt_state).values()):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-8, err_msg=name)


def test_gradient_is_of_the_mean_over_targets(batch):
    """Rows differ in how many targets count: a mean of the rows' means would be another gradient."""
    config = dataclasses.replace(SMALL, accumulation=4)
    point("test_train.mean", config)
    _, metrics = jax.jit(train_step)(state_for(config), batch)

    @jax.jit
    @jax.grad
    def gradient_of_the_mean(model):
        total, sums = loss(model, batch, config)
        return total / sums["targets"]

    gradient = gradient_of_the_mean(state_for(config).model)
    point("test_train.gradient", gradient)
    np.testing.assert_allclose(metrics["train/gradient_norm"], optax.tree.norm(gradient), rtol=1e-5)


VECTORS = "norm", "bias", "sink"  # words in the names of parameters that do not decay


def test_optimizer_is_that_of_torch():
    """Five steps with a gradient that is clipped in some: torch's AdamW, no decay on norms and the like."""
    config = dataclasses.replace(SMALL, steps=5, learning_rate=1e-2, warmup_ratio=0.4, weight_decay=0.5)
    model, optimizer = state_for(config).model, make_optimizer(config)
    opt_state = optimizer.init(model)
    leaves = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in arrays(model).items()}
    decays = [p for name, p in leaves.items() if not any(word in name for word in VECTORS)]
    vectors = [p for name, p in leaves.items() if any(word in name for word in VECTORS)]
    assert vectors and decays
    reference = torch.optim.AdamW(
        [{"params": decays, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0}],
        betas=(config.adam_b1, config.adam_b2),
        eps=config.adam_epsilon,
    )
    rng = np.random.default_rng(0)
    for step in range(config.steps):
        # norms from below to above max_gradient_norm
        scale = 10.0 ** (step - 1.5) / sum(p.numel() for p in leaves.values()) ** 0.5
        gradients = jax.tree.map(lambda x: jnp.array(scale * rng.standard_normal(x.shape), jnp.float32), model)
        for p, gradient in zip(leaves.values(), jax.tree.leaves(gradients)):
            p.grad = torch.tensor(np.array(gradient))
        torch.nn.utils.clip_grad_norm_(leaves.values(), config.max_gradient_norm)
        for group in reference.param_groups:
            group["lr"] = [0.005, 0.01, 0.00775, 0.00325, 0.001][step]
        reference.step()
        updates, opt_state = optimizer.update(gradients, opt_state, model)
        model = optax.apply_updates(model, updates)
        for name, x in arrays(model).items():
            np.testing.assert_allclose(x, leaves[name].detach(), rtol=1e-4, atol=1e-6, err_msg=f"{name} {step}")


def test_learning_rate():
    config = dataclasses.replace(SMALL, steps=110, warmup_ratio=10 / 110, learning_rate=2.0, final_ratio=0.1)
    rates = [float(learning_rate(done, config)) for done in (0, 4, 9, 59, 109, 200)]
    np.testing.assert_allclose(rates, [0.2, 1.0, 2.0, 1.1, 0.2, 0.2], rtol=1e-5)
    assert float(learning_rate(0, dataclasses.replace(config, steps=1))) == 2.0


def test_gradient_norm_is_logged_before_clipping(batch):
    _, free = jax.jit(train_step)(state_for(dataclasses.replace(SMALL, max_gradient_norm=1e9)), batch)
    _, clipped = jax.jit(train_step)(state_for(dataclasses.replace(SMALL, max_gradient_norm=1e-3)), batch)
    assert free["train/gradient_norm"] == clipped["train/gradient_norm"] > 0.1


def test_loss_falls_to_nothing_on_a_batch_learnt_by_heart(batch):
    config = dataclasses.replace(SMALL, steps=60, learning_rate=1e-2)
    step = jax.jit(train_step, donate_argnums=0)
    state = jax.tree.map(jnp.copy, state_for(config))
    point("test_train.by_heart", config, state)
    losses = []
    for _ in range(config.steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics["train/loss"]))
    assert losses[0] > np.log(config.vocab_size) - 0.1  # knows nothing; a tied head takes a token for the next one
    assert losses[-1] < 0.1
    assert int(state.step) == 60


def test_state_is_made_as_its_parameters_are_laid_out():
    mesh = make_mesh(1, 1, 1)
    state = create_state(SMALL, mesh)
    parameters, mean = state.model, state.opt_state[1][0].mu
    point("test_train.parameters", parameters)
    for parameter, moment in zip(jax.tree.leaves(parameters), jax.tree.leaves(mean)):
        assert parameter.sharding == moment.sharding
    for a, b in zip(jax.tree.leaves(state.model), jax.tree.leaves(state_for(SMALL).model)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    again = create_state(SMALL, mesh, state.model)
    assert all(bool((a == b).all()) for a, b in zip(jax.tree.leaves(again.model), jax.tree.leaves(state.model)))


PUBLISHED = next(name for name in PRESETS if name != "tiny")


def run_command(monkeypatch, *arguments: str) -> int:
    """The exit code of the command line in this process."""
    monkeypatch.setattr("sys.argv", ["train", *arguments])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("..train", __package__).main()
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--wdith", "3"], ["--wdith", "Perhaps you meant", "--width INT"]),
        (["--width", "x"], ["--width", "invalid literal", "size of the residual stream"]),
        (["--preset", "8"], ["8", PUBLISHED, "tiny"]),
    ],
    ids=lambda x: x[0],
)
def test_flags_that_cannot_be_read(arguments, texts, monkeypatch, capsys):
    assert run_command(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    for text in texts:
        assert text in said


def test_settings_that_do_not_fit(monkeypatch, capsys):
    assert run_command(monkeypatch, "--checkpoint-every", "0") == 2
    assert capsys.readouterr().err == "error: --checkpoint-every 0: must be an integer from 1 to 2,147,483,647\n"
    assert run_command(monkeypatch, "--width", "0", "--learning-rate", "nan", "--adam-b1", "1.5") == 2
    said = capsys.readouterr().err  # all at once
    for text in ("--width 0: must be an integer", "--learning-rate nan: must", "--adam-b1 1.5: must be"):
        assert text in said
    assert run_command(monkeypatch, "--batch-size", "9", "--accumulation", "2", "--mesh-fsdp", "1") == 2
    assert "error: --batch-size 9: must be a multiple of accumulation x data x fsdp, 2\n" in capsys.readouterr().err


def test_a_mistake_ends_with_what_is_wrong():
    process = run_python("-m", f"{PACKAGE.name}.train", "--data", "/no/such/file")
    assert process.returncode == 2 and "Traceback" not in process.stderr
    assert "/no/such/file" in process.stderr


def test_help_names_each_field(monkeypatch, capsys):
    assert run_command(monkeypatch, "--help", "--preset", PUBLISHED) == 0
    text = capsys.readouterr().out
    for field in dataclasses.fields(Config):
        assert f"--{field.name.replace('_', '-')}" in text
    assert f"default: {PRESETS[PUBLISHED].width}" in text  # of the preset
