"""Experts that rows travel to, none dropped: against a dense loop over experts, and whole models against one device."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collectives import sends
from flax import nnx
from jax.interpreters import mlir

from families.devices import EXPERT_MESHES, expert_mesh, on_eight_devices
from families.test_experts import choices, densely, small
from families.weaving import batch_of, variant


def spread(base: str, target: str, folder, fragment: str = "model/expert_exchange"):
    return variant(base, [fragment], folder, target)


def close(found, expected) -> None:
    """Within 1e-5 of the largest number of each array."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


def most_rows(chosen: np.ndarray, groups: int, expert: int) -> int:
    """The rows that some device along the axis of 8 experts gets, where there are so many groups of them."""
    rows = chosen.reshape(groups, -1)
    return max(np.bincount(group // (8 // expert), minlength=expert).max() for group in rows)


def compare_choices(package, meshes=(*EXPERT_MESHES, (2, 1, 4, 1), (1, 1, 1, 8), (2, 2, 2, 1))) -> None:
    for sizes in meshes:
        for which, active, factor in ("all", 3, 2.0), ("one expert", 1, 1.5), ("some get none", 2, 8.0):
            compare_choice(package, sizes, choices(which, 8, 5, 8, active), factor)


def with_gradients(function):
    """Of what experts give, times `into`, summed."""

    def summed(experts, x, weights, chosen, into):
        return jnp.sum(into * function(experts, x, weights, chosen))

    return jax.jit(jax.value_and_grad(summed, argnums=(0, 1, 2)))


dense_loop = with_gradients(densely)  # compiled once for all meshes


def compare_choice(package, sizes: tuple[int, int, int, int], chosen: np.ndarray, factor: float) -> None:
    """On 8 devices, 5 tokens each: what a dense loop gives, and only by the way that there is room for."""
    config = dataclasses.replace(small(package), experts=8, expert_width=24, exchange_factor=factor, init_std=0.5)
    experts, rng = package.model.Experts(config, nnx.Rngs(0)), np.random.default_rng(0)
    x, into = (jnp.asarray(rng.normal(size=(8, 5, config.width)), jnp.float32) for _ in range(2))
    inputs = x, jnp.asarray(rng.random(chosen.shape), jnp.float32), jnp.asarray(chosen), into
    data, fsdp, expert, _ = sizes
    share = chosen.size // (data * fsdp * expert)
    travels = most_rows(chosen, data * fsdp, expert) <= math.ceil(factor * share)

    other = "gather_and_dispatch" if travels and expert > 1 else "exchange"
    function = getattr(package.model, other)

    def broken(*arguments):
        return jnp.nan * function(*arguments)

    expected, mesh = dense_loop(experts, *inputs), expert_mesh(package, *sizes)
    with jax.set_mesh(mesh):
        layout = package.parallel.abstract(lambda: package.model.Experts(config, nnx.Rngs(0)), mesh)
        placed = jax.device_put(experts, jax.tree.map(lambda leaf: leaf.sharding, layout))
        setattr(package.model, other, broken)
        found = with_gradients(package.model.apply_experts)(placed, *inputs)
        setattr(package.model, other, function)
    close(found, expected)
    print(sizes, "rows travel" if travels else "experts travel")


def ways(lines: list[str]) -> set[str]:
    return {line.split(") ")[1] for line in lines}


@pytest.mark.slow
def test_rows_travel_or_experts_do(tmp_path):
    found = on_eight_devices(compare_choices, spread("mixtral", "cpu", tmp_path))
    assert len(found) == len(EXPERT_MESHES) * 3 and ways(found) == {"rows travel", "experts travel"}


def ragged_all_to_all(operand, output, starts, sizes, places, received, *, axis_name, axis_index_groups):
    """What the documentation of jax.lax.ragged_all_to_all says, in collectives that CPUs have."""
    assert axis_index_groups is None
    slices = len(starts) // jax.lax.axis_size(axis_name)
    me, row = jax.lax.axis_index(axis_name), jnp.arange(len(operand))
    everyones = [jax.lax.all_gather(x, axis_name) for x in (operand, starts, sizes, places)]
    for sender in range(jax.lax.axis_size(axis_name)):
        sent, *tables = (x[sender] for x in everyones)
        for number in range(slices):
            start, size, place = (table[me * slices + number] for table in tables)
            output = output.at[jnp.where(row < size, place + row, len(output))].set(
                sent.at[start + row].get(mode="fill", fill_value=0), mode="drop"
            )
            arrived = received[sender * slices + number]
            output = jnp.where(arrived == size, output, jnp.nan)
    return output


def unwritten(context, *, shape, dtype, out_sharding):
    """Memory as a TPU may give it."""
    return mlir.lower_fun(lambda: jnp.full(shape, jnp.nan, dtype), multiple_results=False)(context)


def compare_ragged(package) -> None:
    lowered = mlir.lower_fun(ragged_all_to_all, multiple_results=False)
    mlir.register_lowering(jax._src.lax.parallel.ragged_all_to_all_p, lowered, platform="cpu")
    mlir.register_lowering(jax._src.lax.lax.empty_p, unwritten, platform="cpu")
    for sizes, factor in ((2, 1, 2, 2), 1.5), ((1, 1, 8, 1), 8.0):
        for which, active in ("all", 3), ("one expert", 1), ("some get none", 2):
            compare_choice(package, sizes, choices(which, 8, 5, 8, active), factor)


@pytest.mark.slow
def test_the_collective_of_tpus_is_told_what_it_must_know(tmp_path):
    """Where its documentation says what it does; no TPU is asked. What it does not write may be anything."""
    found = on_eight_devices(compare_ragged, spread("mixtral", "tpu", tmp_path))
    assert len(found) == 6 and ways(found) == {"rows travel", "experts travel"}


def compare_models(package, meshes=((2, 1, 2, 2), (1, 2, 4, 1))) -> None:
    """Loss and gradients of a model over 8 devices and on one."""
    active = min(3, package.config.PRESETS["tiny"].experts_per_token)
    sizes = dict(experts=8, experts_per_token=active, heads=8, vocab_size=264)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes, dtype="float32", init_std=0.1, batch_size=8)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (8, 14), dtype=np.int32)
    batch = batch_of(tokens)

    @jax.jit
    @jax.value_and_grad
    def loss(model):
        return package.step.loss(model, batch, config)[0]

    model = package.model.Decoder(config, nnx.Rngs(0))
    expected = loss(model)
    for sizes in meshes:
        mesh = expert_mesh(package, *sizes)
        with jax.set_mesh(mesh):
            abstract = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
            found = loss(jax.device_put(model, jax.tree.map(lambda x: x.sharding, abstract)))
        close(found, expected)
        print("same")


@pytest.mark.slow
@pytest.mark.parametrize("base", ["qwen3_moe", "gpt_oss", "llama4", "deepseek_v3"])
def test_any_mixture_of_experts_gives_what_one_device_gives(base, tmp_path):
    """Weights that sum to one, biases of experts, scaled inputs, shared experts."""
    assert on_eight_devices(compare_models, spread(base, "cpu", tmp_path)) == ["same"] * 2


def count_collectives(package) -> None:
    """Which arrays devices send each other in a step: as it is, and where rows always have room to travel."""
    sizes = dict(layers=2, width=64, heads=8, kv_heads=8, head_size=8, expert_width=96, experts=16, vocab_size=264)
    run = dict(context_length=40, sequence_length=40, batch_size=16, remat="full", dtype="float32")
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes, **run)
    as_it_is, never = package.model.gather_and_dispatch, package.model.dispatch
    cases = (as_it_is, 2, 1, 2, 2), (never, 2, 1, 2, 2), (never, 1, 1, 8, 1)
    for package.model.gather_and_dispatch, *sizes in cases:
        jax.clear_caches()  # which know the function of before
        mesh = expert_mesh(package, *sizes)
        with jax.set_mesh(mesh):
            state = package.parallel.abstract(lambda: package.step.new_state(config), mesh)
            compiled = package.step.compile_step(state, package.trainer.abstract_batch(config, mesh), config)
        print(json.dumps(sends(compiled.as_text())))


@pytest.mark.slow
def test_no_expert_travels_where_rows_do(tmp_path):
    """16 experts of width 64 and inner width 96, two layers: a device sums the gradients of its own, and never all."""
    lines = on_eight_devices(count_collectives, spread("qwen3_moe", "cpu", tmp_path))
    found = []
    for line, inner in zip(lines, (48, 48, 96), strict=True):
        kernels = rf"(\d+),(?:64,{inner}|{inner},64)"
        matches = ((re.fullmatch(kernels, shape), kind) for shape, kind in json.loads(line))
        found.append(collections.Counter((int(match[1]), kind) for match, kind in matches if match))
    as_it_is, over_data, without_data = found
    # gate, up and down of each layer: forwards and again backwards, in one branch of two
    assert as_it_is[16, "all-gather"] == 12 and (16, "all-reduce") not in as_it_is
    assert over_data == {(8, "all-reduce"): 2 * 6} and not without_data  # now in two branches, which are alike
