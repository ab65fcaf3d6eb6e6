"""Products in 8 bits against those in bf16 and fp32."""

import dataclasses
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from generator.language import point, setting
from generator.language.roles import (
    FORMAT,
    SMALL,
    Linear,
    describe_products,
    low_precision_product,
    new_state,
    product,
    random_batch,
    state_for,
    train_step,
)

EQUATIONS = [("BTD,DNH->BTNH", (4, 16, 32), (32, 2, 24)), ("BTNH,NHD->BTD", (4, 16, 2, 24), (2, 24, 32))]


def result_and_gradients(multiply, equation, x, kernel, dy):
    y, gradients = jax.vjp(lambda x, kernel: multiply(equation, x, kernel), x, kernel)
    return y, *gradients(dy.astype(y.dtype))


@pytest.mark.parametrize(("equation", "rows", "shape"), EQUATIONS)
@pytest.mark.parametrize("largest", [1, 2**30, 2**-30])
def test_what_8_bits_can_represent_is_exact(equation, rows, shape, largest):
    random = np.random.default_rng(0)
    outputs = jax.eval_shape(lambda x, kernel: jnp.einsum(equation, x, kernel), jnp.zeros(rows), jnp.zeros(shape)).shape
    signs = [jnp.array(random.integers(-1, 2, size), jnp.float32) for size in (rows, shape, outputs)]
    x = largest * signs[0].astype(jnp.bfloat16)
    kernel, dy = signs[1], signs[2]
    found = result_and_gradients(low_precision_product, equation, x, kernel, dy)
    for ours, theirs in zip(found, result_and_gradients(product, equation, x, kernel, dy), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(np.float32(ours), np.float32(theirs), rtol=1e-6)


@pytest.mark.parametrize(("equation", "rows", "shape"), EQUATIONS)
def test_errors_are_those_of_the_format(equation, rows, shape):
    """Of two operands at most half a unit in the last place each: 2**-4 in e4m3."""
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], rows).astype(jnp.bfloat16)
    kernel = jax.random.normal(keys[1], shape)
    y = jnp.einsum(equation, x, kernel)
    dy = jax.random.normal(keys[2], y.shape).astype(jnp.bfloat16).astype(jnp.float32)
    found = result_and_gradients(low_precision_product, equation, x, kernel, dy)
    exact = result_and_gradients(product, equation, x.astype(jnp.float32), kernel, dy)
    bounds = (2**-4 + 2**-4,) * 3 if FORMAT == "fp8" else (2 * 4 / 127, 2 * 4 / 127, 2**-8)
    for ours, theirs, bound in zip(found, exact, bounds, strict=True):
        error = jnp.linalg.norm((ours.astype(jnp.float32) - theirs).ravel()) / jnp.linalg.norm(theirs.ravel())
        assert error < bound


def test_a_row_does_not_depend_on_others():
    x = jax.random.normal(jax.random.key(0), (4, 16, 32)).astype(jnp.bfloat16)
    kernel = jax.random.normal(jax.random.key(1), (32, 24))
    alone = low_precision_product("BTD,DF->BTF", x[2:3, 5:6], kernel)
    among = low_precision_product("BTD,DF->BTF", x.at[0].set(1e30).at[2, 6].set(jnp.nan).at[1].set(0), kernel)
    np.testing.assert_array_equal(np.float32(among[2, 5]), np.float32(alone[0, 0]))
    # numbers that are not finite stay so: a step that has them is skipped
    assert jnp.all(jnp.isnan(among[2, 6])) and jnp.all(among[1] == 0)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_losses_are_those_of_bf16(accumulation, monkeypatch):
    config = dataclasses.replace(SMALL, dtype="bfloat16", steps=10, learning_rate=3e-3, accumulation=accumulation)
    batch = random_batch(config)

    def losses():
        step = jax.jit(lambda state, batch: train_step(state, batch, config))
        state = state_for(config)
        found = []
        for _ in range(config.steps):
            state, metrics = step(state, batch)
            found.append(float(metrics["train/loss"]))
        return np.array(found)

    ours = losses()
    model = sys.modules[Linear.__module__]
    monkeypatch.setattr(model, "low_precision_product", product)
    theirs = losses()
    assert theirs[-1] < 0.95 * theirs[0] and not np.array_equal(ours, theirs)
    np.testing.assert_allclose(ours, theirs, rtol=0.01)


def test_every_linear_map_multiplies_in_8_bits():
    """fp8 has all three products of a step, int8 has two; a program has those of a stack of layers once."""
    config = dataclasses.replace(SMALL, dtype="bfloat16", remat="none")
    if setting("unroll"):
        config = dataclasses.replace(config, layers=1)
    state = jax.eval_shape(lambda: new_state(config))
    program = jax.jit(train_step, static_argnums=2).lower(state, random_batch(config), config).as_text()
    products = re.findall(r"dot_general.*: \(tensor<[0-9x]+x(?:f8E4M3FN|i8)>, tensor<[0-9x]+x(?:f8E4M3FN|i8)>", program)
    maps = [path for path, layer in nnx.iter_modules(state.model) if isinstance(layer, Linear) and "router" not in path]
    each = 3 if FORMAT == "fp8" else 2
    point("test_low_precision.each", each)
    assert len(products) == each * len(maps)


def test_a_device_without_such_units_is_told():
    cpu = jax.devices("cpu")[0]
    assert describe_products("bfloat16", cpu) == f"note: cpu emulates products in {FORMAT}, slower than in bfloat16"
    assert "give --dtype bfloat16" in describe_products("float32", cpu)
