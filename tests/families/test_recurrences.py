"""Recurrences in chunks against one token after the other, in fp64: sizes around those of chunks, packed documents."""

from __future__ import annotations

import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from selected import mostly_slow

from families.weaving import woven


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recurrences")
    return {name: woven(name, "cpu", folder, parts=()).model for name in ("qwen3_5", "bamba", "jamba", "kimi_linear")}


def run_tokens(segment_ids, k, v, decay, write, q):
    """The state [H, V] of each head after exp(decay) and `write(state, k, v)`, read at q; 0 where a segment begins."""
    y = np.zeros_like(v)
    for b, n in np.ndindex(q.shape[0], q.shape[2]):
        state = np.zeros((k.shape[-1], v.shape[-1]))
        for t in range(q.shape[1]):
            if t and segment_ids[b, t] != segment_ids[b, t - 1]:
                state[:] = 0
            state = write(np.exp(decay[b, t, n])[..., None] * state, (b, t, n))
            y[b, t, n] = q[b, t, n] @ state
    return y


def delta_rule(q, k, v, decay, beta, segment_ids):
    """Equation 10 of arXiv 2412.06464."""

    def write(state, at):
        return state + np.outer(k[at], beta[at] * (v[at] - k[at] @ state))

    return run_tokens(segment_ids, k, v, decay, write, q)


def state_space(x, decay, write, read, segment_ids):
    """Equation 16 of arXiv 2405.21060."""
    return run_tokens(segment_ids, write, x, decay, lambda state, at: state + np.outer(write[at], x[at]), read)


def lightning(q, k, v, rates, segment_ids):
    """Section 3.2 of arXiv 2401.04658."""
    decay = np.broadcast_to(-rates, q.shape[:3])
    return run_tokens(segment_ids, k, v, decay, lambda state, at: state + np.outer(k[at], v[at]), q)


def selective_scan(x, step, rate, write, read, is_first):
    """Equation 2 of arXiv 2312.00752, made discrete as its section 3.6 says: its outputs and states."""
    states, state = [], np.zeros((len(x), *rate.shape))
    for t in range(x.shape[1]):
        state = state * ~is_first[:, t, None, None] * np.exp(-step[:, t, :, None] * rate)
        state = state + (step[:, t] * x[:, t])[:, :, None] * write[:, t, None]
        states.append(state)
    states = np.stack(states, axis=1)
    return np.einsum("BTMS,BTS->BTM", states, read), states


def delta_inputs(rng: np.random.Generator, alike: bool = False, sizes: tuple[int, ...] = ()):
    """Random tokens; `alike`: keys that hardly differ, written in full: powers of their products grow."""
    B, T, N, H, V = sizes or (*rng.integers((1, 1), (3, 150)), *rng.integers(1, 5, 3))
    q, k, v = (rng.normal(size=(B, T, N, size)) for size in (H, H, V))
    k = (np.ones_like(k) + 1e-3 * k) if alike else k
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    decay, beta = -rng.exponential(0.1, (B, T, N)), rng.uniform(size=(B, T, N))
    segment_ids = np.cumsum(rng.uniform(size=(B, T)) < rng.choice([0, 0.02, 0.3]), axis=1)
    return (q, k, v, 0 * decay, np.ones_like(beta), segment_ids) if alike else (q, k, v, decay, beta, segment_ids)


def in_steps(rule, tokens, state, segment_ids, rng):
    """Applies a rule to random parts of the tokens, each with the state after the part before."""
    ends, read = {segment_ids.shape[1]}, []
    while rng.uniform() < 0.8:  # where a segment begins, the state would not be 0
        t = int(rng.integers(segment_ids.shape[1]))
        ends |= {t} if t and (segment_ids[:, t] == segment_ids[:, t - 1]).all() else set()
    for start, end in itertools.pairwise([0, *sorted(ends)]):
        y, state = rule(*(x[:, start:end] for x in tokens), state, segment_ids[:, start:end])
        read.append(y)
    return np.concatenate(read, axis=1)


@pytest.mark.parametrize("cases", mostly_slow([4, 200], 4))
def test_chunks_and_steps_equal_the_recurrences(models, cases):
    rng = np.random.default_rng(0)
    with jax.enable_x64(True), jax.disable_jit():  # each size would be compiled
        for case in range(cases):
            *tokens, segment_ids = delta_inputs(rng, alike=case % 10 == 0)
            q, k, v, decay, _ = tokens
            empty = np.zeros((q.shape[0], q.shape[2], k.shape[-1], v.shape[-1]))
            y = in_steps(models["qwen3_5"].gated_delta_rule, tokens, empty, segment_ids, rng)
            np.testing.assert_allclose(y, delta_rule(*tokens, segment_ids), atol=1e-10)
            tokens = v, decay, k, q
            y = in_steps(models["bamba"].scan_states, tokens, empty, segment_ids, rng)
            np.testing.assert_allclose(y, state_space(*tokens, segment_ids), atol=1e-10)


@pytest.mark.parametrize("cases", mostly_slow([4, 200], 4))
def test_scans_in_parts_equal_the_recurrence(models, cases):
    """Parts of few lengths, next to those of chunks: each length is compiled."""
    rng = np.random.default_rng(0)
    module = importlib.import_module(f"{models['jamba'].__package__}.recurrence")
    scan, recur = jax.jit(module.selective_scan), jax.jit(module.linear_recurrence)
    with jax.enable_x64(True):
        for _ in range(cases):
            lengths = rng.choice([1, 63, 64, 130], rng.integers(1, 4))
            B, T, M, S = 2, lengths.sum(), 3, 4
            x, step = rng.normal(size=(B, T, M)), rng.exponential(0.3, (B, T, M))
            rate, write, read = rng.exponential(size=(M, S)), rng.normal(size=(B, T, S)), rng.normal(size=(B, T, S))
            is_first = rng.uniform(size=(B, T)) < rng.choice([0, 0.02, 0.3])
            ends = np.cumsum(lengths)
            is_first[:, ends - lengths] = False  # where a segment begins, the state would not be 0
            segment_ids = np.cumsum(is_first, axis=1)
            decay = ~is_first[:, :, None, None] * np.exp(-step[..., None] * rate)
            written = (step * x)[..., None] * write[:, :, None]
            expected, states = selective_scan(x, step, rate, write, read, is_first)
            state, found = np.zeros((B, M, S)), np.zeros((B, M, S))
            for start, end in zip(ends - lengths, ends, strict=True):
                of_part = [array[:, start:end] for array in (x, step, write, read, segment_ids, written, decay)]
                y, state = scan(*of_part[:2], rate, *of_part[2:4], state, of_part[4])
                np.testing.assert_allclose(y, expected[:, start:end], atol=1e-10)
                found = recur(*of_part[5:], found)
                np.testing.assert_allclose(found, states[:, start:end], atol=1e-10)
                found = found[:, -1]


@pytest.mark.parametrize("cases", mostly_slow([4, 200], 4))
def test_the_delta_rule_of_channels_in_parts_equals_the_recurrence(models, cases):
    """Parts of few lengths, next to those of chunks: each length is compiled."""
    rng, rule = np.random.default_rng(0), jax.jit(models["kimi_linear"].gated_delta_rule)
    with jax.enable_x64(True):
        for _ in range(cases):
            lengths = rng.choice([1, 63, 64, 130], rng.integers(1, 4))
            *tokens, segment_ids = delta_inputs(rng, sizes=(2, lengths.sum(), 2, 3, 4))
            tokens[3] = -rng.exponential(rng.choice([0.1, 1, 50]), tokens[1].shape)
            ends = np.cumsum(lengths)
            for start in ends[:-1]:  # where a segment begins, the state would not be 0
                segment_ids[:, start:] -= segment_ids[:, start, None] - segment_ids[:, start - 1, None]
            expected, state = delta_rule(*tokens, segment_ids), np.zeros((2, 2, 3, 4))
            for start, end in zip(ends - lengths, ends, strict=True):
                y, state = rule(*(x[:, start:end] for x in tokens), state, segment_ids[:, start:end])
                np.testing.assert_allclose(y, expected[:, start:end], atol=1e-10)


@pytest.mark.parametrize("cases", mostly_slow([4, 200], 4))
def test_steps_of_lightning_attention_equal_the_recurrence(tmp_path, cases):
    """Steps with padding, or with a state after each token."""
    rng = np.random.default_rng(0)
    package = woven("minimax", "cpu", tmp_path, parts=("serve",)).model.__package__
    attend_after = importlib.import_module(f"{package}.states").linear_attention_after
    with jax.enable_x64(True), jax.disable_jit():
        for _ in range(cases):
            q, k, v, *_ = delta_inputs(rng)
            B, T, N, _ = q.shape
            rates, start = rng.exponential(0.1, N), 0
            memory = np.zeros((B, N, k.shape[-1], v.shape[-1]))
            expected = lightning(q, k, v, rates, np.zeros((B, T)))
            while start < T:
                end = int(rng.integers(start, T)) + 1
                after_each = rng.uniform() < 0.3
                padding = [(0, 0), (0, 0 if after_each else 2), (0, 0), (0, 0)]
                tokens = [np.pad(x[:, start:end], padding, "edge") for x in (q, k, v)]
                counts = np.arange(1, end - start + 1) if after_each else np.array([end - start])
                y, memories = attend_after(memory, *tokens, rates, np.broadcast_to(counts, (B, len(counts))))
                np.testing.assert_allclose(y[:, : end - start], expected[:, start:end], atol=1e-10)
                memory, start = memories[:, -1], end


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_the_delta_rule_stays_finite(models, dtype):
    """Where keys are alike, the powers of the chunk's matrix overflow."""
    *tokens, segment_ids = delta_inputs(np.random.default_rng(1), alike=True)
    tokens = [x.astype(dtype).astype(np.float64) for x in tokens]
    rounded = [x.astype(np.float32) for x in tokens]
    q, _, v, _, _ = rounded
    empty = np.zeros((q.shape[0], *q.shape[2:], v.shape[-1]), np.float32)
    rule = models["qwen3_5"].gated_delta_rule
    gradients = jax.grad(lambda *x: rule(*x, empty, segment_ids)[0].sum(), argnums=range(5))(*rounded)
    assert all(np.isfinite(x).all() for x in gradients)
    np.testing.assert_allclose(rule(*rounded, empty, segment_ids)[0], delta_rule(*tokens, segment_ids), atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_the_delta_rule_of_channels_stays_finite(models, dtype):
    """Where a channel forgets all at once, exponents of what is between tokens, taken apart, would overflow."""
    rng = np.random.default_rng(1)
    *tokens, segment_ids = delta_inputs(rng)
    q, k, v, _, beta = tokens
    decay = -rng.exponential(300, k.shape) * (rng.uniform(size=k.shape) < 0.3)
    assert q.shape[1] > 64 and -decay[:, :64].sum(axis=1).max() > 1000  # exp(1000) is no number of fp64 either
    tokens = [x.astype(dtype).astype(np.float64) for x in (q, k, v, decay, beta)]
    rounded = [x.astype(np.float32) for x in tokens]
    empty = np.zeros((q.shape[0], *q.shape[2:], v.shape[-1]), np.float32)
    rule = models["kimi_linear"].gated_delta_rule
    gradients = jax.grad(lambda *x: rule(*x, empty, segment_ids)[0].sum(), argnums=range(5))(*rounded)
    assert all(np.isfinite(x).all() for x in gradients)
    np.testing.assert_allclose(rule(*rounded, empty, segment_ids)[0], delta_rule(*tokens, segment_ids), atol=1e-5)


def test_gradients_of_kimi_delta_attention_are_finite_in_bfloat16(models):
    """Where it forgets most of its state at each token, and where it forgets all of it."""
    config = importlib.import_module(f"{models['kimi_linear'].__package__}.config").PRESETS["tiny"]
    layer = models["kimi_linear"].KimiDeltaAttention(config, nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 100, config.width), jnp.bfloat16)
    segment_ids = jnp.arange(100)[None] // 40 + jnp.zeros((2, 1), jnp.int32)
    gradient = jax.jit(jax.grad(lambda layer, x: layer(x, segment_ids).astype(jnp.float32).sum(), argnums=(0, 1)))
    for bias in 0.0, 100.0:
        layer.step_bias[...] = jnp.full_like(layer.step_bias[...], bias)
        gradients = jax.tree.leaves(gradient(layer, x))
        assert all(np.isfinite(x.astype(np.float32)).all() for x in gradients)
        assert sum(np.any(x != 0) for x in gradients) > 10
