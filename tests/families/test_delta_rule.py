"""The delta rule in chunks against its recurrence, in fp64: sizes around those of chunks, and packed documents."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from selected import mostly_slow

from families.weaving import woven


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return woven("qwen3_5", "cpu", tmp_path_factory.mktemp("delta"), parts=()).model


def recurrence(q, k, v, decay, beta, segment_ids):
    """One token after the other, as in equation 10 of arXiv 2412.06464."""
    y = np.zeros_like(v)
    for b, n in np.ndindex(q.shape[0], q.shape[2]):
        state = np.zeros((k.shape[-1], v.shape[-1]))
        for t in range(q.shape[1]):
            if t and segment_ids[b, t] != segment_ids[b, t - 1]:
                state[:] = 0
            state *= np.exp(decay[b, t, n])
            state += np.outer(k[b, t, n], beta[b, t, n] * (v[b, t, n] - k[b, t, n] @ state))
            y[b, t, n] = q[b, t, n] @ state
    return y


def inputs(rng: np.random.Generator, alike: bool):
    """Random tokens; `alike`: keys that hardly differ, written in full: powers of their products grow."""
    B, T, N, H, V = (*rng.integers((1, 1), (3, 150)), *rng.integers(1, 5, 3))
    q, k, v = (rng.normal(size=(B, T, N, size)) for size in (H, H, V))
    k = (np.ones_like(k) + 1e-3 * k) if alike else k
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    decay, beta = -rng.exponential(0.1, (B, T, N)), rng.uniform(size=(B, T, N))
    segment_ids = np.cumsum(rng.uniform(size=(B, T)) < rng.choice([0, 0.02, 0.3]), axis=1)
    return (q, k, v, 0 * decay, np.ones_like(beta), segment_ids) if alike else (q, k, v, decay, beta, segment_ids)


@pytest.mark.parametrize("cases", mostly_slow([12, 200], 12))
def test_chunks_equal_the_recurrence(model, cases):
    rng = np.random.default_rng(0)
    with jax.enable_x64(True), jax.disable_jit():  # each size would be compiled
        for case in range(cases):
            given = inputs(rng, alike=case % 10 == 0)
            np.testing.assert_allclose(model.gated_delta_rule(*given), recurrence(*given), atol=1e-10)


def test_it_stays_finite_in_fp32(model):
    """Where keys are alike, the powers of the chunk's matrix overflow."""
    given = inputs(np.random.default_rng(1), alike=True)
    rounded = [x.astype(np.float32) for x in given[:5]]
    gradients = jax.grad(lambda *x: model.gated_delta_rule(*x, given[5]).sum(), argnums=range(5))(*rounded)
    assert all(np.isfinite(x).all() for x in gradients)
    np.testing.assert_allclose(model.gated_delta_rule(*rounded, given[5]), recurrence(*given), atol=1e-3)
