"""Rollout routing replay: which experts an engine tells, and which ones training uses."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import requires, setting
from generator.language.roles import (
    WIDE,
    Config,
    Decoder,
    Engine,
    EngineSettings,
    Rollouts,
    Routes,
    SamplingParams,
    drafting,
    layers_with_experts,
    loss,
    make_mesh,
    replayed_experts,
    routes_by_token,
    wide_model,
)

requires("routing", "tests/engines")

AUXILIARY = {f.name: 0.0 for f in dataclasses.fields(WIDE) if f.name in ("load_balance", "router_z", "mtp_loss_weight")}


def used_experts(model: Decoder, batch: dict[str, Array], config: Config) -> Array:
    """Returns the experts [B, T, L, A] that a pass over a batch uses."""
    inputs = {name: batch[name] for name in ("tokens", "positions", "segment_ids")}
    outputs = jax.tree.leaves(model.hidden(**inputs, replay=replayed_experts(batch, config)))
    return routes_by_token([x for x in outputs if jnp.issubdtype(x.dtype, jnp.integer)], config)


def some(prompt, completion):
    return sum(map(ord, completion)) % 10


@pytest.fixture
def rollouts(tmp_path) -> Rollouts:
    rows = [{"prompt": "abc" * size} for size in (1, 2, 3, 4)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = dict(
        data=str(tmp_path / "prompts.jsonl"),
        reward=f"{__name__}:some",
        objective=setting("policy_objective"),
        group_size=2,
    )
    config = dataclasses.replace(WIDE, **made, **AUXILIARY, completion_tokens=12)
    rollouts = Rollouts(config, NamedSharding(make_mesh(1, 1, 1), PartitionSpec()))
    rollouts.follow(wide_model, lambda policy: None, None)
    return rollouts


def moved(model: Decoder, size: float) -> Decoder:
    """Returns the model with noise on its routers."""
    draw = np.random.default_rng(0)

    def move(path, x):
        return x + draw.normal(0, size, x.shape).astype(x.dtype) if "router" in jax.tree_util.keystr(path) else x

    return jax.tree_util.tree_map_with_path(move, model)


def test_an_engine_tells_the_experts_of_each_token():
    """Also of prompts that others computed, in chunks, with pages of many sequences; as one pass chooses them."""
    sizes = EngineSettings(max_sequences=3, max_length=32, page_size=4, chunk=8, **drafting(2))
    engine = Engine(WIDE, wide_model(), {0}, sizes)
    engine.routes = Routes(engine.pool.pages, sizes.page_size)
    prompt = np.random.default_rng(0).integers(1, 100, 13).tolist()
    sampling = SamplingParams(max_tokens=9, temperature=1.0, seed=3)
    requests = engine.generate([prompt, prompt, prompt[:9], [*prompt[:8], 5], prompt[::-1], prompt], sampling)
    assert sum(request.cached for request in requests) > 20
    used = jax.jit(lambda model, batch: used_experts(model, batch, WIDE))
    for request in requests:
        assert request.routes.shape == (len(request.sequence) - 1, layers_with_experts(WIDE), WIDE.experts_per_token)
        batch = {name: np.zeros((1, 32), np.int32) for name in ("tokens", "positions", "segment_ids")}
        size = len(request.routes)
        batch["tokens"][0, :size] = request.sequence[:-1]
        batch["positions"][0, :size] = range(size)
        batch["segment_ids"][0, :size] = 1
        chosen = np.asarray(used(wide_model(), batch))[0, :size]
        np.testing.assert_array_equal(np.sort(request.routes), np.sort(chosen))


def test_training_uses_the_experts_of_the_engine(rollouts):
    """Where its own router would choose others; padding and completions without a reward go where it chooses."""
    batch = next(rollouts)
    config = rollouts.config
    engines = batch["experts"]
    is_sampled = batch["segment_ids"] > 0
    assert np.all((engines >= 0) == is_sampled[:, :, None, None])
    free = batch | {"experts": np.full_like(engines, -1)}
    model = moved(wide_model(), 0.1)
    used = jax.jit(lambda model, batch: used_experts(model, batch, config))
    replayed, own = (np.asarray(used(model, x)) for x in (batch, free))
    np.testing.assert_array_equal(replayed[is_sampled], engines[is_sampled])
    np.testing.assert_array_equal(replayed[~is_sampled][:, :1], own[~is_sampled][:, :1])  # until attention
    assert 0.02 < np.mean(np.sort(own) != np.sort(replayed))
    gradient = jax.jit(jax.grad(lambda model: loss(model, batch, config)[0]))(model)
    routers = [x for path, x in jax.tree_util.tree_leaves_with_path(gradient) if "router" in jax.tree_util.keystr(path)]
    assert routers and all(np.any(np.asarray(x)) and np.all(np.isfinite(x)) for x in routers)


def test_the_same_choice_changes_nothing(rollouts):
    """The loss and every gradient: to the bit of the same program, and up to rounding of one without replay."""
    batch = next(rollouts)
    free = batch | {"experts": np.full_like(batch["experts"], -1)}
    plain = {name: values for name, values in batch.items() if name != "experts"}
    step = jax.jit(jax.value_and_grad(lambda model, batch: loss(model, batch, rollouts.config), has_aux=True))
    (replayed, *_), found = step(wide_model(), batch)
    for other, tolerance in (free, 0), (plain, 1e-5):
        (total, *_), gradient = step(wide_model(), other)
        np.testing.assert_allclose(replayed, total, rtol=tolerance)
        for x, y in zip(*map(jax.tree.leaves, (found, gradient)), strict=True):
            assert jnp.linalg.norm(x - y) <= tolerance * jnp.linalg.norm(y) + tolerance * 1e-3
