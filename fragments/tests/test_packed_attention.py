"""Attention of packed documents by kernels, against all scores at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import point, requires
from generator.language.roles import attend_packed

requires("packed_attention")


def attend_at_once(q, k, v, segment_ids):
    """Computes attention from the scores of all tokens: q [B, T, N, H], k and v [B, T, K, H] -> [B, T, N, H]."""
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    distance = jnp.arange(q.shape[1])[:, None] - jnp.arange(q.shape[1])
    seen = (distance >= 0) & (segment_ids[:, None, :, None] == segment_ids[:, None, None, :])
    point("attend_at_once.seen", seen, distance)
    scores = jnp.einsum("BTNH,BSNH->BNTS", q, k) / np.sqrt(q.shape[3])
    return jnp.einsum("BNTS,BSNH->BTNH", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)


@pytest.fixture
def attention():
    """Returns the kernels as layers call them."""
    run = attend_packed
    point("test_packed_attention.run", run)
    return run


@pytest.mark.parametrize(("length", "heads", "kv_heads", "size"), [(300, 6, 2, 16), (256, 3, 1, 24)])
def test_packed_documents_and_their_gradients(attention, length, heads, kv_heads, size):
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = [(2, length, n, size) for n in (heads, kv_heads, kv_heads, heads)]
    q, k, v, weights = (jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))
    # documents within a block, over several of them and as long as one; the last token alone; padding
    documents = np.array([[5, 100, 23, length - 129, 1], [128, 0, length - 138, 7, 3]])
    segment_ids = jnp.stack([jnp.repeat(jnp.array([1, 2, 3, 4, 0]), sizes) for sizes in documents])

    def outputs(attend):
        def loss(*inputs):
            context = attend(*inputs)
            return jnp.sum(weights * context), context

        (_, context), gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(q, k, v)
        return context, *gradients

    found = outputs(lambda *inputs: attention(*inputs, segment_ids, "cpu"))
    expected = outputs(lambda *inputs: attend_at_once(*inputs, segment_ids))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_no_array_has_the_length_squared(attention):
    length = 1152
    inputs = [jax.ShapeDtypeStruct((1, length, heads, 64), jnp.bfloat16) for heads in (4, 2, 2)]
    inputs.append(jax.ShapeDtypeStruct((1, length), jnp.int32))

    def program(attend):
        gradient = jax.grad(lambda *inputs: jnp.sum(attend(*inputs)).astype(jnp.float32), (0, 1, 2))
        return jax.jit(gradient).trace(*inputs).lower(lowering_platforms=("cuda",)).as_text()

    assert f"{length}x{length}x" in program(attend_at_once)
    assert f"{length}x{length}x" not in program(lambda *inputs: attention(*inputs, "gpu"))
