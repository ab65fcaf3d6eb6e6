"""Attention to selected keys against plain sums, and its gradient against their slope."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import point, requires
from generator.language.roles import Index, attend_selected, index_scores

requires("attend_selected")

HIGHEST = 5  # keys that a query attends to


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def attend_slowly(q, k, v, index, segment_ids):
    """Computes attention by its definition: one query at a time, over the keys that rank highest for it.

    And the divergence of ranks from the mean of the heads' weights.
    """
    B, T, N, H = q.shape
    out, divergence = np.zeros((B, T, N, v.shape[-1])), np.zeros((B, T))
    for b, t in np.ndindex(B, T):
        seen = np.array([s for s in range(t + 1) if segment_ids[b, s] == segment_ids[b, t]])
        ranks = np.maximum(index.query[b, t] @ index.key[b, seen].T, 0).T @ index.weight[b, t]
        with point("attend_slowly.selected", ranks):
            order = np.argsort(-ranks, kind="stable")[:HIGHEST]
        seen = seen[order]
        shares = softmax(ranks[order])
        weights = [softmax(k[b, seen, n] @ q[b, t, n] / np.sqrt(H)) for n in range(N)]
        out[b, t] = [weights[n] @ v[b, seen, n] for n in range(N)]
        target = np.mean(weights, axis=0)
        divergence[b, t] = target @ np.log(target / shares)
    return out, divergence


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
        compare(attend_quickly(*inputs, index, segment_ids), expected)
    compare(attend_quickly(*inputs, index, None), expected)


def compare(quickly, slowly):
    for ours, theirs in zip(quickly, slowly, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_of_equal_keys_the_first_are_seen():
    (q, k, v), index, _ = random_inputs(12)
    equal = index._replace(weight=0 * index.weight)
    assert not np.any(index_scores(equal.query, equal.weight, equal.key))
    quickly = attend_quickly(*(x.astype(np.float32) for x in (q, k, v)), equal, None)
    compare(quickly, attend_slowly(q, k, v, equal, np.ones((2, 12))))


@pytest.mark.parametrize("of_index", [False, True])
def test_gradients_are_slopes(of_index):
    """What tokens read moves with queries, keys and values alone; the divergence with the index alone."""
    heads, index, segment_ids = random_inputs(140)
    rng = np.random.default_rng(1)
    inputs = [x.astype(np.float32) for x in heads]
    result, still, moving = (1, inputs, index) if of_index else (0, index, inputs)
    weights = rng.normal(size=attend_quickly(*inputs, index, segment_ids)[result].shape)

    def loss(moving, still):
        moved = (*still, moving) if of_index else (*moving, still)
        return jnp.sum(weights * attend_quickly(*moved, segment_ids)[result])

    gradients, others = jax.jit(jax.grad(loss, (0, 1)))(moving, still)
    assert not any(np.any(x) for x in jax.tree.leaves(others))
    directions = [rng.normal(size=x.shape) for x in moving]

    def slowly(h):
        moved = [x.astype(float) + h * d for x, d in zip(index if of_index else heads, directions, strict=True)]
        moved = (*heads, Index(*moved)) if of_index else (*moved, index)
        return np.sum(weights * attend_slowly(*moved, segment_ids)[result])

    slope = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(slope, (slowly(1e-6) - slowly(-1e-6)) / 2e-6, rtol=1e-4)
