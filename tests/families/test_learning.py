"""Schedules and optimizers that one line selects: against optax on plain arrays and plain loops, resumed to the bit."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, AxisType
from selected import mostly_slow

from families.parity import load_package
from families.weaving import abstract_batch, variant

ARCHITECTURES = ["llama2", "qwen3_moe", "deepseek_v3"]
REPLACES = {"train/wsd": ["train/cosine"], "train/adafactor": ["train/adamw"], "train/ema": []}


def learner(architecture: str, learning: list[str], folder):
    return variant(architecture, learning, folder, without=[name for it in learning for name in REPLACES.get(it, [])])


@pytest.fixture(scope="module", params=mostly_slow(ARCHITECTURES, "llama2"))
def package(request, tmp_path_factory):
    """With all three."""
    return learner(request.param, list(REPLACES), tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return {name: learner("llama2", [name], tmp_path_factory.mktemp("own")) for name in REPLACES}


@pytest.mark.slow
@pytest.mark.parametrize("learning", REPLACES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_step_of_each_traces(architecture, learning, tmp_path):
    package = learner(architecture, [learning], tmp_path)
    config = dataclasses.replace(package.config.PRESETS["tiny"], batch_size=2)
    state = jax.eval_shape(lambda: package.step.new_state(config))
    new, _ = jax.eval_shape(functools.partial(package.step.train_step, config=config), state, abstract_batch(2, 64))
    assert jax.tree.structure(new) == jax.tree.structure(state)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(new)] == [(x.shape, x.dtype) for x in jax.tree.leaves(state)]


SHARES = (0.0, 0.1, 1e-3), (0.05, 0.2, 0.1), (0.3, 1e-6, 0.5), (0.001, 0.333, 1.0), (0.035, 0.1, 0.1)


@pytest.mark.parametrize("shares", [SHARES[0], *(pytest.param(it, marks=pytest.mark.slow) for it in SHARES[1:])])
def test_wsd_is_optax_joined(llama, shares):
    warmup_ratio, decay_ratio, final_ratio = shares
    package, peak, steps = llama["train/wsd"], 3e-3, 200
    config = dataclasses.replace(
        package.config.PRESETS["tiny"], steps=steps, learning_rate=peak, final_ratio=final_ratio
    )
    config = dataclasses.replace(config, warmup_ratio=warmup_ratio, decay_ratio=decay_ratio)
    warmup, decay = (math.ceil(round(ratio * steps, 6)) for ratio in (warmup_ratio, decay_ratio))
    falling = optax.exponential_decay(peak, decay, final_ratio, end_value=peak * final_ratio)
    parts = [optax.linear_schedule(0, peak, warmup), optax.constant_schedule(peak), falling]
    expected = optax.join_schedules(parts, [warmup, steps - decay])
    done = np.arange(steps + 5)
    np.testing.assert_allclose(package.step.learning_rate(done, config), jax.vmap(expected)(done + 1), rtol=1e-5)
    assert float(package.step.learning_rate(steps - 1, config)) == pytest.approx(final_ratio * peak)


def random_like(tree, seed: int):
    leaves, structure = jax.tree.flatten(tree)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        structure, [jnp.array(10.0**-seed * rng.standard_normal(x.shape), x.dtype) for x in leaves]
    )


def updates_of(package, config, rule, check) -> None:
    """Three steps of the package's optimizer and of a rule on a dict of plain arrays; `check` compares their updates."""
    model = package.step.new_state(config).model
    plain, ours = package.parallel.named_arrays(model), package.step.make_optimizer(config)
    state, theirs = ours.init(model), rule.init(plain)
    for step in range(3):
        gradients = random_like(model, step)
        updates, state = jax.jit(ours.update)(gradients, state, model)
        expected, theirs = jax.jit(rule.update)(package.parallel.named_arrays(gradients), theirs, plain)
        for name, x in package.parallel.named_arrays(updates).items():
            check(x, expected[name], name)
        model, plain = optax.apply_updates(model, updates), optax.apply_updates(plain, expected)


def test_adafactor_is_that_of_optax_on_plain_arrays(llama):
    package = llama["train/adafactor"]
    config = dataclasses.replace(package.config.PRESETS["tiny"], layers=2, weight_decay=0.0, warmup_ratio=0.0, steps=9)
    rate = lambda done: package.step.learning_rate(done, config)  # noqa: E731
    rule = optax.adafactor(rate, multiply_by_parameter_scale=False)
    updates_of(package, config, rule, lambda x, y, name: np.testing.assert_allclose(x, y, rtol=1e-5, err_msg=name))


def test_factors_are_laid_out_as_their_parameter_without_the_axis_that_is_left_out(package):
    """Of the last preset, a large one; a factor of what is not factored is on every device."""
    config = list(package.config.PRESETS.values())[-1]
    axes = package.parallel.make_mesh(1, 1, 1).axis_names
    sizes = tuple(2 if axis in ("fsdp", "tensor") else 1 for axis in axes)
    mesh = AbstractMesh(sizes, axes, axis_types=(AxisType.Auto,) * len(axes))
    state = package.parallel.abstract(lambda: package.step.new_state(config), mesh)
    factors, names = state.opt_state[0], package.parallel.named_arrays
    rows, columns, whole = (names(tree) for tree in (factors.v_row, factors.v_col, factors.v))
    factored = 0
    for name, x in names(state.model).items():
        spec = [*x.sharding.spec, *[None] * (x.ndim - len(x.sharding.spec))]
        if whole[name].shape == x.shape:
            assert whole[name].sharding.spec == x.sharding.spec and rows[name].sharding.is_fully_replicated
            continue
        factored += 1
        for factor in (rows[name], columns[name]):
            kept = [place for place in range(x.ndim) if (*x.shape[:place], *x.shape[place + 1 :]) == factor.shape]
            assert tuple(factor.sharding.spec) in [(*spec[:place], *spec[place + 1 :]) for place in kept], name
    assert factored
    sizes = [sum(x.size for x in jax.tree.leaves(tree)) for tree in (state.opt_state, state.model)]
    assert sizes[0] < 0.03 * sizes[1]
    assert any("fsdp" in str(x.sharding.spec) for x in jax.tree.leaves(factors.v_row))


def test_first_moments_in_bfloat16_take_half_the_memory_and_are_those_of_optax(llama):
    package = llama["train/wsd"]
    config = dataclasses.replace(package.config.PRESETS["tiny"], layers=2, warmup_ratio=0.0, weight_decay=0.0)
    half = dataclasses.replace(config, moments_dtype="bfloat16", max_gradient_norm=1e9)
    bytes_of = lambda tree: sum(x.nbytes for x in jax.tree.leaves(tree))  # noqa: E731
    moments, thin = (package.step.new_state(c).opt_state[1][0] for c in (config, half))
    assert bytes_of(thin.mu) == bytes_of(moments.mu) / 2 and bytes_of(thin.nu) == bytes_of(moments.nu)
    rate = lambda done: package.step.learning_rate(done, half)  # noqa: E731
    rule = optax.adamw(rate, half.adam_b1, half.adam_b2, half.adam_epsilon, mu_dtype=jnp.bfloat16, weight_decay=0.0)
    updates_of(package, half, rule, lambda x, y, name: np.testing.assert_allclose(x, y, rtol=1e-5, err_msg=name))


def stored(package, config, folder, step: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The model and the training state of a checkpoint, by name."""
    checkpoints, mesh = package.trainer.Checkpoints(folder, None), package.parallel.make_mesh(1, 1, 1)
    target = package.parallel.abstract(lambda: package.step.new_state(config), mesh)
    trees = {"model": target.model, "training": dataclasses.replace(target, model=None)}
    found = (checkpoints.read_arrays(step, item, tree)[0] for item, tree in trees.items())
    return tuple({name: np.asarray(x) for name, x in arrays.items()} for arrays in found)


def records(folder) -> list[dict]:
    kept = ("step", "train/loss", "train/learning_rate", "eval/loss")
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [record for line in lines if len(record := {name: line[name] for name in kept if name in line}) > 1]


def run_twice(package, folder, **settings):
    """Settings of a run of four steps, saved after each, and of one that goes on from its second: they are equal."""
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"text": f"document {i} " * 20}) + "\n" for i in range(60)))
    sizes = dict(
        batch_size=2, sequence_length=64, steps=4, checkpoint_every=1, eval_every=2, eval_batches=1, keep_last=9
    )
    sizes |= dict(data=str(data), checkpoint_dir=str(folder / "run"), compile_cache=str(folder / "cache"), mesh_fsdp=1)
    config = dataclasses.replace(package.config.PRESETS["tiny"], learning_rate=1e-2, **sizes | settings)
    package.trainer.train(config)
    again = dataclasses.replace(config, checkpoint_dir=str(folder / "again"))
    shutil.copytree(folder / "run", folder / "again")
    for step in ("3", "4"):
        shutil.rmtree(folder / "again" / step)
    package.trainer.train(again)
    assert records(folder / "again") == records(folder / "run")
    for ours, theirs in zip(*(stored(package, config, folder / name, 4) for name in ("run", "again")), strict=True):
        assert ours.keys() == theirs.keys()
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    return config


def test_a_run_goes_on_to_the_bit_and_its_average_is_that_of_a_plain_loop(package, tmp_path):
    config = run_twice(package, tmp_path, ema_decay=0.7, decay_ratio=0.5, warmup_ratio=0.3)
    average = {
        name: np.array(x) for name, x in package.parallel.named_arrays(package.step.new_state(config).model).items()
    }
    for step in range(1, 5):
        model, training = stored(package, config, tmp_path / "run", step)
        learnt = {name: training[f"average.{name}"] for name in average}
        average = {name: 0.7 * x + 0.3 * learnt[name] for name, x in average.items()}
        for name, x in average.items():
            np.testing.assert_allclose(model[name], x, rtol=1e-4, atol=1e-6, err_msg=name)
        assert any(np.abs(model[name] - learnt[name]).max() > 1e-3 for name in average)
    # what is generated from and exported, and what was evaluated
    checkpoint = importlib.import_module(f"{package.config.__package__}.checkpoints")
    _, loaded = checkpoint.load_checkpoint(str(tmp_path / "run"), package.parallel.make_mesh(1, 1, 1))
    assert all(np.array_equal(x, model[name]) for name, x in package.parallel.named_arrays(loaded).items())
    (batch,) = package.data.held_out_batches(config, range(config.batch_size))
    sums = package.step.eval_step(loaded, batch, config)
    (evaluated,) = (r["eval/loss"] for r in records(tmp_path / "run") if r["step"] == 4 and "eval/loss" in r)
    assert evaluated == pytest.approx(float(sums["cross_entropy"] / sums["targets"]), rel=1e-5)


@pytest.mark.slow
def test_a_run_with_moments_in_bfloat16_goes_on_to_the_bit(llama, tmp_path):
    run_twice(llama["train/wsd"], tmp_path, moments_dtype="bfloat16", layers=2)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_run_with_muon_goes_on_to_the_bit(architecture, tmp_path):
    """AdamW keeps nothing of Muon's matrices, nor Muon of AdamW's parameters."""
    run_twice(learner(architecture, ["train/muon", "train/ema"], tmp_path), tmp_path)


def test_a_step_without_finite_gradients_leaves_the_average_alone(llama):
    package = llama["train/ema"]
    config = dataclasses.replace(package.config.PRESETS["tiny"], layers=1, batch_size=1, sequence_length=8)
    state = package.step.new_state(config)
    state = dataclasses.replace(state, average=jax.tree.map(lambda x: x + 1, state.model))
    ones = {name: np.ones((1, 8), np.int32) for name in ("tokens", "targets", "segment_ids")}
    batch = ones | {"positions": np.arange(8, dtype=np.int32)[None], "weights": np.full((1, 8), np.nan, np.float32)}
    new, metrics = jax.jit(package.step.train_step, static_argnums=2)(state, batch, config)
    assert metrics["train/skipped"]
    for x, y in zip(jax.tree.leaves(new.average), jax.tree.leaves(state.average), strict=True):
        assert np.array_equal(x, y)


REWARD = """
import os
def some(prompt, completion):
    with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as file:
        file.write(".")
        return len(set(completion)) / (file.tell() != 5)
"""


def test_what_is_saved_when_a_reward_fails_is_the_average(llama, tmp_path, monkeypatch):
    # again, as processes of rewards find its modules by name, and other packages have the name too
    package = load_package(Path(llama["train/ema"].trainer.__file__).parent)
    (tmp_path / "rewarding.py").write_text(REWARD)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n')
    for folder in tmp_path, Path(package.trainer.__file__).parents[1]:  # for processes of rewards too
        monkeypatch.syspath_prepend(folder)
    sizes = dict(batch_size=2, sequence_length=32, layers=1, width=32, keep_last=9, eval_share=0, mesh_fsdp=1)
    sizes |= dict(objective="grpo", reward="rewarding:some", group_size=2, completion_tokens=4, ema_decay=0.5)
    sizes |= dict(data=str(tmp_path / "prompts.jsonl"), learning_rate=0.1, warmup_ratio=0.0)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes)
    config = dataclasses.replace(config, steps=3, checkpoint_dir=str(tmp_path / "failing"))
    with pytest.raises(package.errors.InputError, match="ZeroDivisionError"):  # of the third rollout
        package.trainer.train(config)
    package.trainer.train(dataclasses.replace(config, checkpoint_dir=str(tmp_path / "whole"), checkpoint_every=1))
    saved, wanted = (stored(package, config, tmp_path / name, 2)[0] for name in ("failing", "whole"))
    assert all(np.array_equal(saved[name], wanted[name]) for name in wanted)
