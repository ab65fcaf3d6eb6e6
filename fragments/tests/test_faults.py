"""Steps that go wrong: gradients that are not finite, devices that compute wrongly, evaluation that takes too much."""

import dataclasses
import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language.roles import (
    SMALL,
    Config,
    InputError,
    Monitor,
    Stop,
    TrainState,
    abstract,
    compile_step,
    create_state,
    eval_step,
    learning_rate,
    make_mesh,
    new_state,
    step_twice,
    train_step,
)


def batch_of(config: Config) -> dict[str, np.ndarray]:
    shape = config.batch_size, config.sequence_length
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, shape, np.int32)
    positions = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    inputs = {"tokens": tokens, "targets": np.roll(tokens, -1, axis=1), "positions": positions}
    return inputs | {"segment_ids": np.ones(shape, np.int32), "weights": np.ones(shape, np.float32)}


def equal(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_without_finite_gradients_changes_nothing_but_its_number(accumulation):
    """Afterwards the run goes on as one that never saw that batch."""
    config = dataclasses.replace(SMALL, accumulation=accumulation)
    step, good = jax.jit(train_step), batch_of(config)
    bad = good | {"weights": good["weights"].copy()}
    bad["weights"][0, 0] = np.inf
    start, metrics = step(jax.jit(lambda: new_state(config))(), good)
    assert not metrics["train/skipped"] and math.isfinite(metrics["train/loss"])
    after, metrics = step(start, bad)
    assert metrics["train/skipped"] and not math.isfinite(metrics["train/loss"])
    assert after.step == 2 and equal((after.model, after.opt_state), (start.model, start.opt_state))
    state, metrics = step(after, good)
    other, _ = step(start, good)
    assert not metrics["train/skipped"] and equal((state.model, state.opt_state), (other.model, other.opt_state))
    # what is reported is the rate that the optimizer applied, and it counts no step that was skipped
    np.testing.assert_allclose(metrics["train/learning_rate"], learning_rate(1, config), rtol=1e-6)
    assert not equal(state.model, start.model)


def test_gradients_that_are_none_are_not_taken_though_the_loss_is_finite(monkeypatch):
    module = sys.modules[train_step.__module__]
    plain, start = module.loss, jax.jit(lambda: new_state(SMALL))()

    def steep(model, batch, config):  # adds 0, whose slope is infinite
        total, sums = plain(model, batch, config)
        return total + jnp.sqrt(0 * jax.tree.leaves(model)[0].sum()), sums

    monkeypatch.setattr(module, "loss", steep)
    after, metrics = jax.jit(lambda *x: train_step(*x))(start, batch_of(SMALL))  # not the one that is traced already
    assert metrics["train/skipped"] and math.isfinite(metrics["train/loss"])
    assert equal((after.model, after.opt_state), (start.model, start.opt_state))


def test_skipped_steps_are_counted_and_too_many_end_the_run(tmp_path):
    config = dataclasses.replace(SMALL, max_skipped=2, steps=9)
    monitor = Monitor(tmp_path, config, 0)
    skipped = {"train/loss": jnp.array(jnp.nan), "train/skipped": jnp.array(True)}
    taken = {"train/loss": jnp.array(1.0), "train/skipped": jnp.array(False)}
    for number, metrics in enumerate([taken, skipped, skipped, taken, skipped, skipped], 1):
        monitor.step(number, metrics)
    with pytest.raises(InputError, match="no finite gradients in 3 steps up to 7: lower --learning-rate"):
        monitor.step(7, skipped)
    monitor.close()

    def no_constant(name):
        raise ValueError(f"{name} is not JSON")

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=no_constant) for line in lines]
    assert [r["train/skipped"] for r in records] == [0, 1, 2, 0, 1, 2, 3]
    assert [r.get("train/loss") for r in records] == [1.0, None, None, 1.0, None, None, None]
    assert (tmp_path / "loss.png").exists()


def test_evaluation_takes_no_more_memory_than_its_microbatches():
    """Accumulation 8: an eighth of the activations at a time, so less than a third of the memory, and the same sums."""
    whole = dataclasses.replace(SMALL, batch_size=16, sequence_length=128)
    batch, sums, memory = batch_of(whole), [], []
    for config in whole, dataclasses.replace(whole, accumulation=8):
        model = jax.jit(lambda config=config: new_state(config).model)()
        compiled = jax.jit(eval_step).lower(model, batch).compile()
        sums.append(compiled(model, batch))
        memory.append(compiled.memory_analysis().temp_size_in_bytes)
    for name in "cross_entropy", "targets":
        np.testing.assert_allclose(sums[1][name], sums[0][name], rtol=1e-5)
    assert memory[1] < memory[0] / 3, memory


def test_a_step_done_twice_is_the_step_and_a_flipped_bit_is_found():
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        batch = jax.device_put(batch_of(SMALL), jax.NamedSharding(mesh, jax.P()))
        step = compile_step(abstract(lambda: new_state(SMALL), mesh), batch)
        state = create_state(SMALL, mesh)
        once, _ = step(jax.tree.map(jnp.copy, state), batch)
        twice, metrics = step_twice(step, jax.tree.map(jnp.copy, state), batch)
        assert equal(once, twice) and math.isfinite(metrics["train/loss"])

        def faulty(calls: list, state: TrainState, batch: dict) -> tuple[TrainState, dict]:
            """Flips one bit of what one of two steps gives."""
            calls.append(state)
            state, metrics = step(state, batch)
            if len(calls) == 2:
                leaves, structure = jax.tree.flatten(state.model)
                bits = jax.lax.bitcast_convert_type(leaves[0], jnp.uint32)
                flipped = bits ^ (jnp.arange(bits.size).reshape(bits.shape) == 0)
                leaves[0] = jax.lax.bitcast_convert_type(flipped, jnp.float32)
                state = dataclasses.replace(state, model=jax.tree.unflatten(structure, leaves))
            return state, metrics

        with pytest.raises(Stop, match=r"^step 1 gave two results, which differ in model\.[\w.]+: find"):
            step_twice(lambda *x, calls=[]: faulty(calls, *x), state, batch)
