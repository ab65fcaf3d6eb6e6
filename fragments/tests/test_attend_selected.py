"""Attention to selected keys against plain sums, and its gradient against their slope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import Index, attend_selected, index_scores

requires("attend_selected")

HIGHEST = 5  # keys that a query attends to


def attend_slowly(q, k, v, index, segment_ids):
    """Computes attention by its definition: one query at a time, over the keys that rank highest for it."""
    B, T, N, H = q.shape
    out = np.zeros((B, T, N, v.shape[-1]))
    for b, t in np.ndindex(B, T):
        seen = np.array([s for s in range(t + 1) if segment_ids[b, s] == segment_ids[b, t]])
        ranks = np.maximum(index.query[b, t] @ index.key[b, seen].T, 0).T @ index.weight[b, t]
        seen = seen[np.argsort(-ranks, kind="stable")[:HIGHEST]]
        for n in range(N):
            scores = k[b, seen, n] @ q[b, t, n] / np.sqrt(H)
            weights = np.exp(scores - scores.max())
            out[b, t, n] = weights / weights.sum() @ v[b, seen, n]
    return out


def random_inputs(length):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, length, 3, size)) for size in (8, 8, 6))
    shapes = (2, length, 4, 5), (2, length, 4), (2, length, 5)
    index = Index(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))
    return (q, k, v), index, np.sort(rng.integers(1, 4, (2, length)), axis=1)


@jax.jit
def attend_quickly(q, k, v, index, segment_ids):
    return attend_selected(q, k, v, index, HIGHEST, segment_ids)


@pytest.mark.parametrize("length", [1, 3, 37, 140])
def test_a_token_attends_to_the_keys_that_rank_highest(length):
    heads, index, packed = random_inputs(length)
    inputs = [x.astype(np.float32) for x in heads]
    for segment_ids in packed, np.ones_like(packed):
        expected = attend_slowly(*heads, index, segment_ids)
        np.testing.assert_allclose(attend_quickly(*inputs, index, segment_ids), expected, atol=1e-5)
    np.testing.assert_allclose(attend_quickly(*inputs, index, None), expected, atol=1e-5)


def test_of_equal_keys_the_first_are_seen():
    (q, k, v), index, _ = random_inputs(12)
    equal = index._replace(weight=0 * index.weight)
    assert not np.any(index_scores(equal.query, equal.weight, equal.key))
    last = attend_quickly(*(x.astype(np.float32) for x in (q, k, v)), equal, None)[:, -1]
    np.testing.assert_allclose(last, attend_slowly(q, k, v, equal, np.ones((2, 12)))[:, -1], atol=1e-5)


def test_the_gradient_is_the_slope_and_none_is_of_the_index():
    heads, index, segment_ids = random_inputs(140)
    rng = np.random.default_rng(1)
    directions = [rng.normal(size=x.shape) for x in heads]
    weights = rng.normal(size=heads[2].shape)

    def slowly(h):
        moved = [x + h * d for x, d in zip(heads, directions, strict=True)]
        return np.sum(weights * attend_slowly(*moved, index, segment_ids))

    inputs = [x.astype(np.float32) for x in heads]
    gradients, of_index = jax.jit(
        jax.grad(lambda x, index: jnp.sum(weights * attend_quickly(*x, index, segment_ids)), (0, 1))
    )(inputs, index)
    slope = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(slope, (slowly(1e-5) - slowly(-1e-5)) / 2e-5, rtol=1e-4)
    assert not any(np.any(x) for x in jax.tree.leaves(of_index))
