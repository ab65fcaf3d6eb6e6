"""Experts with a capacity, on devices of their own, against a dense loop over experts that drops what comes too late."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from selected import mostly_slow

from families.devices import EXPERT_MESHES, expert_mesh, on_eight_devices
from families.test_experts import choices, densely, small
from families.weaving import variant, woven


def with_capacity(base: str, folder):
    return variant(base, ["model/expert_capacity"], folder, without=["model/dropless"])


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return with_capacity("mixtral", tmp_path_factory.mktemp("capacity"))


def kept(chosen: np.ndarray, experts: int, factor: float) -> np.ndarray:
    """Which pairs of a token and an expert are among the first that the expert has room for, token after token."""
    room, taken = math.ceil(factor * chosen.size / experts), np.zeros(experts, int)
    found = np.zeros(chosen.size, bool)
    for pair, expert in enumerate(chosen.ravel()):
        found[pair] = taken[expert] < room
        taken[expert] += 1
    return found.reshape(chosen.shape)


@pytest.mark.parametrize("factor", mostly_slow([1e-9, 0.5, 1.0, 1.25, 5.0], 0.5, 5.0))
@pytest.mark.parametrize(
    ("which", "length", "active"), [("all", 19, 3), ("one expert", 7, 1), ("some get none", 13, 2)]
)
def test_each_expert_takes_what_it_has_room_for(package, which, length, active, factor):
    config = dataclasses.replace(small(package), init_std=0.5, capacity_factor=factor)
    experts, rng = package.model.Experts(config, nnx.Rngs(0)), np.random.default_rng(1)
    chosen = choices(which, 2, length, config.experts, active)
    x, into = (jnp.asarray(rng.normal(size=(2, length, config.width)), jnp.float32) for _ in range(2))
    weights, has_room = jnp.asarray(rng.random(chosen.shape), jnp.float32), kept(chosen, config.experts, factor)
    assert has_room.all() == (factor == 5.0 or (factor >= 1.25 and not (1 - has_room).any()))

    def ours(experts, x, weights):
        return jnp.sum(into * package.model.apply_experts(experts, x, weights, jnp.asarray(chosen)))

    def theirs(experts, x, weights):
        return jnp.sum(into * densely(experts, x, jnp.where(has_room, weights, 0), jnp.asarray(chosen)))

    found, expected = (jax.jit(jax.value_and_grad(f, argnums=(0, 1, 2)))(experts, x, weights) for f in (ours, theirs))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


def compare_meshes(package) -> None:
    """On 8 devices: each gives what its rows give by themselves; tokens travel, and no device has all experts."""
    for factor in 8.0, 0.75:  # with room for all, and without
        for sizes in (2, 1, 4, 1), *EXPERT_MESHES:
            compare_mesh(package, sizes, factor)
            print("same on", sizes, "with", factor)


def compare_fewer_meshes(package) -> None:
    for sizes, factor in ((2, 1, 4, 1), 8.0), *((sizes, 0.75) for sizes in EXPERT_MESHES):
        compare_mesh(package, sizes, factor)
        print("same on", sizes, "with", factor)


def compare_mesh(package, sizes: tuple[int, int, int, int], factor: float) -> None:
    config = dataclasses.replace(small(package), experts=8, expert_width=24, capacity_factor=factor, init_std=0.5)
    experts, rng = package.model.Experts(config, nnx.Rngs(0)), np.random.default_rng(0)
    x, into = (jnp.asarray(rng.normal(size=(8, 6, config.width)), jnp.float32) for _ in range(2))
    chosen = jnp.asarray(np.argsort(rng.random((8, 6, 8)))[..., :3])
    weights = jnp.asarray(rng.random(chosen.shape), jnp.float32)
    groups = math.prod(sizes[:3])  # of rows, one on each device along data, fsdp and expert

    def spread(experts, x, weights):
        return jnp.sum(into * package.model.apply_experts(experts, x, weights, chosen))

    def alone(experts, x, weights):
        parts = zip(*(jnp.split(array, groups) for array in (x, weights, chosen)), strict=True)
        return jnp.sum(into * jnp.concatenate([package.model.apply_experts(experts, *part) for part in parts]))

    def with_gradients(function):
        return jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2)))

    expected, mesh = with_gradients(alone)(experts, x, weights), expert_mesh(package, *sizes)
    with jax.set_mesh(mesh):
        layout = package.parallel.abstract(lambda: package.model.Experts(config, nnx.Rngs(0)), mesh)
        placed = jax.device_put(experts, jax.tree.map(lambda leaf: leaf.sharding, layout))
        compiled = with_gradients(spread).lower(placed, x, weights).compile()
        found = compiled(placed, x, weights)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4)
    text = compiled.as_text()
    assert "all-to-all" in text and f"f32[8,{config.width},{24 // sizes[3]}]" not in text


@pytest.mark.parametrize(
    ("compare", "count"), mostly_slow([(compare_fewer_meshes, 5), (compare_meshes, 10)], (compare_fewer_meshes, 5))
)
def test_tokens_travel_to_the_devices_of_their_experts(package, compare, count):
    assert len(on_eight_devices(compare, package)) == count


@pytest.mark.slow
@pytest.mark.parametrize("base", ["gpt_oss", "llama4", "deepseek_v3"])
def test_any_mixture_of_experts_can_have_a_capacity(base, tmp_path):
    """Biases of experts, scaled inputs, shared experts: with room for all tokens, what dropless experts give."""
    package = with_capacity(base, tmp_path)
    dropless = woven(base, "cpu", tmp_path)
    tokens, found = np.arange(34, dtype=np.int32).reshape(2, 17), []
    for which in package, dropless:
        config = which.config.PRESETS["tiny"]
        factor = dict(capacity_factor=float(config.experts)) if which is package else {}
        config = dataclasses.replace(config, dtype="float32", init_std=0.1, **factor)
        found.append(jax.jit(which.model.Decoder(config, nnx.Rngs(0)))(tokens))
    np.testing.assert_allclose(*found, atol=1e-4, rtol=1e-4)
