"""Attention against plain sums, and its gradient against their slope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import point, requires
from generator.language.roles import attend

requires("attention or latent_attention")


def attend_slowly(q, k, v, segment_ids):
    """Computes attention by its definition: one query at a time, over the keys it may see."""
    B, T, N, H = q.shape
    out = np.zeros((B, T, N, H))
    for b, t, n in np.ndindex(B, T, N):
        kv_head = n // (N // k.shape[2])
        seen = [s for s in range(t + 1) if segment_ids[b, s] == segment_ids[b, t]]
        point("attend_slowly.seen", seen, t)
        scores = k[b, seen, kv_head] @ q[b, t, n] / np.sqrt(H)
        point("attend_slowly.scores", scores, seen, n, t)
        weights = np.exp(scores - scores.max())
        total = weights.sum()
        point("attend_slowly.total", total, scores, n)
        out[b, t, n] = weights / total @ v[b, seen, kv_head]
    return out


@pytest.fixture
def attention():
    """Compiles `attend` as layers call it."""
    run = attend
    point("test_attention.run", run)
    return jax.jit(run)


@pytest.mark.parametrize(("length", "kv_heads"), [(1, 2), (3, 4), (37, 2), (140, 1)])
def test_attention_is_its_definition(attention, length, kv_heads):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, length, heads, 8)).astype(np.float32) for heads in (4, kv_heads, kv_heads))
    packed = np.sort(rng.integers(1, 4, (2, length)), axis=1)
    for segment_ids in packed, np.ones_like(packed):
        np.testing.assert_allclose(attention(q, k, v, segment_ids), attend_slowly(q, k, v, segment_ids), atol=1e-5)
    np.testing.assert_allclose(attention(q, k, v, None), attend_slowly(q, k, v, np.ones_like(packed)), atol=1e-5)


def test_the_gradient_of_attention_is_its_slope(attention):
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(1, 140, heads, 8)) for heads in (4, 2, 2)]
    directions = [rng.normal(size=x.shape) for x in inputs]
    weights = rng.normal(size=(1, 140, 4, 8))
    segment_ids = np.array([[1] * 8 + [2] * 131 + [0]])

    def slowly(h):
        return np.sum(weights * attend_slowly(*(x + h * d for x, d in zip(inputs, directions)), segment_ids))

    gradient = jax.jit(jax.grad(lambda x: jnp.sum(weights * attention(*x, segment_ids))))
    slope = sum(np.sum(g * d) for g, d in zip(gradient([x.astype(np.float32) for x in inputs]), directions))
    np.testing.assert_allclose(slope, (slowly(1e-5) - slowly(-1e-5)) / 2e-5, rtol=1e-4)


def test_attention_in_bfloat16_stays_near_float32(attention):
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 64, 4, 16))
    rounded = attention(*(x.astype(jnp.bfloat16) for x in (q, k, v)), None)
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_allclose(rounded.astype(jnp.float32), attention(q, k, v, None), atol=0.05)
