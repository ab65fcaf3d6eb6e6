"""Decode steps on CPUs: products of few rows are those of many, and no step copies kernels or the KV cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import WIDE, Engine, EngineSettings, product, run, wide_model

requires("few_rows")


@pytest.mark.parametrize(
    ("equation", "shape"), [("BTD,DF->BTF", (6, 4)), ("BTD,DNH->BTNH", (6, 2, 3)), ("BTNH,NHD->BTD", (2, 3, 6))]
)
def test_products_of_few_rows_and_their_gradients_are_those_of_many(equation, shape):
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=shape).astype("float32")
    x = rng.normal(size=(1, 100, *shape[: equation.index(",") - 2])).astype("float32")

    def square(x, kernel):
        return (product(equation, x, kernel) ** 2).sum()

    few = [jax.grad(square, (0, 1))(part, kernel) for part in np.split(x, 4, axis=1)]
    dx = np.concatenate([dx for dx, _ in few], axis=1)
    ours = dx, sum(dkernel for _, dkernel in few)
    reference = jax.grad(lambda x, kernel: (jnp.einsum(equation, x, kernel) ** 2).sum(), (0, 1))(x, kernel)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), ours, reference)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_needs_no_more_memory_with_a_larger_cache(dtype):
    """XLA on CPUs would convert all pages of a cache in bf16 before it reads a few of them."""
    config = dataclasses.replace(WIDE, dtype=dtype)
    model = jax.tree.map(lambda x: x.astype(dtype) if x.ndim > 1 else x, wide_model())
    sizes = []
    for tokens in 256, 4096:
        settings = EngineSettings(max_sequences=4, max_length=64, page_size=4, kv_cache_tokens=tokens)
        device = Engine(config, model, set(), settings).device
        step = run.lower(device.model, device.state, device.slots, device.dummy_step(4, 1), 1, False)
        sizes.append(step.compile().memory_analysis().temp_size_in_bytes)
    assert sizes[0] == sizes[1]
