"""Experts that a mixture is given, against formulas of each family in fp64, and a dense loop."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from families.test_experts import choices, densely
from families.weaving import woven


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def in_turn(logits: np.ndarray, chosen: np.ndarray, config) -> np.ndarray:
    """SparseMixer, equation 8: the softmax over those near each expert, without those before it."""
    weights = []
    for place, expert in enumerate(chosen):
        near = logits[expert] - logits <= 2 * config.router_jitter * np.maximum(np.abs(logits), logits[expert])
        near[chosen[:place]] = False
        weights.append(np.exp(logits[expert]) / np.exp(logits[near]).sum())
    return np.array(weights)


FORMULAS = {
    "olmoe": lambda logits, chosen, config: softmax(logits)[chosen],
    "qwen3_moe": lambda logits, chosen, config: softmax(logits[chosen]),
    "gpt_oss": lambda logits, chosen, config: softmax(logits[chosen]),
    "deepseek_v2": lambda logits, chosen, config: config.expert_scale * softmax(logits)[chosen],
    "deepseek_v3": lambda logits, chosen, config: (
        config.expert_scale * sigmoid(logits[chosen]) / sigmoid(logits[chosen]).sum()
    ),
    "llama4": lambda logits, chosen, config: sigmoid(logits[chosen]),
    "phimoe": in_turn,
}


@pytest.mark.parametrize("family", FORMULAS)
def test_weights_are_of_the_experts_given(family, tmp_path, monkeypatch):
    """By the mixture's own logits, which it would choose others by; where none is given, its own choice."""
    model = (package := woven(family, "cpu", tmp_path, parts=("routing_replay",))).model
    config = dataclasses.replace(package.config.PRESETS["tiny"], dtype="float32", init_std=0.3)
    mixture = model.MixtureOfExperts(config.model, nnx.Rngs(0))
    draw = np.random.default_rng(0)
    for bias in (getattr(mixture, "balance_bias", None), getattr(mixture.router, "bias", None)):
        if bias is not None:
            bias[...] = jnp.asarray(draw.normal(0, 0.3, bias.shape), jnp.float32)
    B, T, A, E = 2, 7, config.experts_per_token, config.experts
    given = choices("all", B, T, E, A).astype(np.int8)
    given[1, 4:] = -1
    x = jnp.asarray(draw.normal(size=(B, T, config.width)), jnp.float32)
    used = {}

    def keep(experts, x, weights, chosen):
        used.update(weights=weights, chosen=chosen)
        return x

    with monkeypatch.context() as patched:
        patched.setattr(model, "apply_experts", keep)
        mixture(x, segment_ids=None, replay=None)
        own = np.asarray(used["chosen"])
        mixture(x, segment_ids=None, replay=jnp.asarray(given))
    wanted = np.where(given < 0, own, given)
    np.testing.assert_array_equal(used["chosen"], wanted)
    assert np.mean(np.sort(own) != np.sort(wanted)) > 0.2
    logits = np.asarray(mixture.router(x), np.float64)
    formula = np.vectorize(lambda *values: FORMULAS[family](*values, config), signature="(e),(a)->(a)")
    np.testing.assert_allclose(used["weights"], formula(logits, wanted), rtol=2e-5)
    if family == "qwen3_moe":
        into = draw.normal(size=x.shape).astype(np.float32)

        def replayed(mixture, x):
            return mixture(x, segment_ids=None, replay=jnp.asarray(given))[0]

        def looped(mixture, x):
            weights = jax.nn.softmax(jnp.take_along_axis(mixture.router(x), jnp.asarray(wanted), axis=-1))
            return densely(mixture.experts, x, weights, jnp.asarray(wanted))

        def found(computed, mixture, x):
            y, gradient = jax.vjp(jax.jit(computed), mixture, x)
            return [np.asarray(leaf) for leaf in jax.tree.leaves((y, gradient(jnp.asarray(into, y.dtype))))]

        ours = found(replayed, mixture, x)
        with jax.enable_x64(True):
            truth = found(looped, *jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (mixture, x)))
        for a, b in zip(ours, truth, strict=True):
            assert a.dtype == np.float32 and b.dtype == np.float64
            assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)
