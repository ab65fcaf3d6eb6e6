"""LoRA and DoRA in every architecture, against the same model with merged kernels, which plain products give."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from selected import mostly_slow

from families.weaving import LIBRARY, batch_of, in_double, write
from generator.checkpoint.loading import load_package
from generator.weaver import weave

CASES = [(name, part) for name in LIBRARY.architectures() for part in ("lora", "dora")]
# plain; experts in one tensor
QUICK = [("llama2", "dora"), ("granitemoe", "lora")]
# whose gradients in float32 are 1e-4 from those in float64, by adapters and by merged kernels alike
IN_DOUBLE = {"gemma4", "gemma4_moe"}


def adapted(model) -> dict[str, nnx.Module]:
    """The modules with an adapter, by path."""
    modules = {".".join(map(str, path)): module for path, module in nnx.iter_modules(model)}
    return {path: module for path, module in modules.items() if getattr(module, "adapter", None) is not None}


def merged_kernel(linear, scale: float) -> jax.Array:
    """The weights W + scale * A B, of DoRA with columns of the trained norms: of each layer and expert a matrix."""
    kernel, adapter = linear.kernel.get_value(), linear.adapter
    x, letters, y = linear.equation.replace("->", ",").split(",")
    shared, outputs = [letter for letter in letters if (letter in x) == (letter in y)], set(y) - set(x)
    layers = kernel.ndim - len(letters)
    matrices, columns = layers + len(shared), len(outputs & set(letters))
    stack, size = kernel.shape[:matrices], math.prod(kernel.shape[-columns:])
    inputs, rank = math.prod(kernel.shape[matrices:-columns]), adapter.down.shape[-1]  # no -1: there may be no layers
    w = kernel.reshape(*stack, inputs, size)
    a = adapter.down.reshape(*stack, inputs, rank)
    b = jnp.moveaxis(adapter.up.get_value(), layers, matrices).reshape(*stack, rank, size)
    v = w + scale * a @ b
    if getattr(adapter, "magnitude", None) is not None:
        norm = jnp.linalg.norm(w, axis=-2, keepdims=True) + adapter.magnitude.reshape(*stack, 1, size)
        v = norm * v / jax.lax.stop_gradient(jnp.linalg.norm(v, axis=-2, keepdims=True))
    return v.reshape(kernel.shape)


@pytest.mark.parametrize(("name", "part"), mostly_slow(CASES, *QUICK))
def test_adapters_compute_and_learn_as_merged_kernels_do(name, part, tmp_path):
    folder = write(weave(name, "cpu", LIBRARY, parts=(part,)), tmp_path)
    if name in IN_DOUBLE:
        with jax.enable_x64():
            compare_with_merged(load_package(in_double(folder)), "float64")
    else:
        compare_with_merged(load_package(folder), "float32")


def compare_with_merged(package, dtype: str) -> None:
    config = dataclasses.replace(package.config.PRESETS["tiny"], dtype=dtype, lora_rank=3, lora_alpha=6.0)
    # of which the first moment after a step is the gradient of the mean loss
    config = dataclasses.replace(config, adam_b1=0.0, max_gradient_norm=1e30, warmup_ratio=0.0, batch_size=2)
    random = np.random.default_rng(0)
    state = jax.jit(lambda: package.step.new_state(config))()
    adapters = package.model.adapters_of(state.model)
    # of 0.1, the gradients of Mamba-2 are 2e-4 apart, which is rounding: with float64 for float32 it is 1e-14
    adapters = jax.tree.map(lambda x: random.normal(0, 0.03, x.shape).astype(dtype), adapters)
    state = dataclasses.replace(state, model=package.model.with_adapters(state.model, adapters))
    assert adapted(state.model) and not any(path.endswith("router") for path in adapted(state.model))
    batch = batch_of(random.integers(0, config.vocab_size, (2, 17), dtype=np.int32))
    trained, metrics = jax.jit(functools.partial(package.step.train_step, config=config))(state, batch)

    def mean_loss(adapters, model):
        model = package.model.with_adapters(model, adapters)
        for linear in adapted(model).values():
            linear.kernel = nnx.Param(merged_kernel(linear, 2.0), axes=linear.kernel.axes)
            linear.adapter = None
        total, sums = package.step.loss(model, batch, config)
        return total / sums["targets"], sums["cross_entropy"] / sums["targets"]

    (_, loss), gradient = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))(adapters, state.model)
    np.testing.assert_allclose(metrics["train/loss"], loss, rtol=1e-6)
    named = package.parallel.named_arrays
    moments = {path.partition(".mu.")[2]: x for path, x in named(trained.opt_state).items()}
    for path, x in named(gradient).items():
        np.testing.assert_allclose(moments[path], x, rtol=0, atol=1e-5 * np.abs(x).max(initial=1e-4), err_msg=path)

    before, after = named(state.model), named(trained.model)
    changed = {path for path, x in after.items() if not np.array_equal(x, before[path])}
    assert changed == {path for path, x in before.items() if ".adapter." in path and x.size}
