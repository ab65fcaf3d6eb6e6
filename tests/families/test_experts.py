"""The experts of a woven package against a dense loop over them, and the losses of its routers."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Iterator

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx
from selected import mostly_slow
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from families.cases import FAMILIES
from families.devices import MESHES, compare_with_one, on_eight_devices
from families.weaving import LIBRARY, abstract_batch, batch_of, variant, with_architecture, woven
from generator.checkpoint.fit import fit


def with_router_z(target: str, folder):
    return variant("mixtral", ["model/router_z"], folder, target)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return with_router_z("cpu", tmp_path_factory.mktemp("experts"))


@pytest.fixture(scope="module", params=mostly_slow(["cpu", "gpu", "tpu", "trainium"], "cpu", "trainium"))
def of_each_target(request, tmp_path_factory):
    return with_router_z(request.param, tmp_path_factory.mktemp("experts"))


@pytest.fixture(scope="module")
def config(package):
    return small(package)


def small(package):
    sizes = dict(width=16, experts=5, experts_per_token=3, expert_width=12, layers=3, init_std=0.2, vocab_size=32)
    return dataclasses.replace(package.config.PRESETS["tiny"], **sizes, dtype="float32", batch_size=3, accumulation=3)


def densely(experts, x, weights, chosen):
    """Each expert over every token, weighted by nothing where it was not chosen."""
    kernels = [linear.kernel[...] for linear in (experts.gate, experts.up, experts.down)]
    y = jnp.zeros_like(x)
    for expert, (gate, up, down) in enumerate(zip(*kernels, strict=True)):
        weight = jnp.sum(jnp.where(chosen == expert, weights, 0), axis=-1, keepdims=True)  # [B, T, 1]
        y += weight * (jax.nn.silu(x @ gate) * (x @ up) @ down)
    return y


def choices(which: str, rows: int, length: int, experts: int, active: int) -> np.ndarray:
    """The experts of each token [B, T, A], all different in a token."""
    if which == "one expert":
        return np.full((rows, length, 1), experts // 2)
    order = np.argsort(np.random.default_rng(0).random((rows, length, experts)), axis=-1)
    if which == "some get none":
        order = order[order < 3].reshape(rows, length, 3)
    return order[..., :active]


@pytest.mark.parametrize(
    ("which", "rows", "length", "active"),
    [
        *(("all", 2, 19, 3), ("one expert", 2, 7, 1), ("some get none", 1, 13, 2), ("one token", 1, 1, 3)),
        *(("all", 1, 9, 5), ("some get none", 4, 41, 3)),
    ],
)
def test_experts_are_a_loop_over_them(of_each_target, which, rows, length, active):
    package = of_each_target
    config = small(package)
    experts = package.model.Experts(dataclasses.replace(config, init_std=0.5), nnx.Rngs(0))
    chosen = jnp.asarray(choices(which, rows, length, config.experts, active))
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=(rows, length, config.width)), jnp.float32)
    weights, into = (
        jnp.asarray(rng.random(shape), jnp.float32) for shape in ((rows, length, active), (rows, length, config.width))
    )

    def summed(function):
        return jax.jit(
            jax.value_and_grad(
                lambda experts, x, weights: jnp.sum(into * function(experts, x, weights, chosen)), argnums=(0, 1, 2)
            )
        )

    y = jax.jit(package.model.apply_experts)(experts, x, weights, chosen)
    np.testing.assert_allclose(y, densely(experts, x, weights, chosen), atol=1e-5, rtol=1e-5)
    ours, theirs = (summed(f)(experts, x, weights) for f in (package.model.apply_experts, densely))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


def batch_with_padding(config) -> dict[str, np.ndarray]:
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (3, 14), dtype=np.int32)
    batch = batch_of(tokens, [13], [6, 4], [2])
    batch["weights"][:, 5] = 0  # the last of a document, say: it has no target and is routed all the same
    return batch


def router_logits(package, model, batch) -> tuple[list[np.ndarray], np.ndarray]:
    """What the router of each layer gives, [B T, E], and which of the tokens are not padding, [B T]."""
    angles = package.model.rotary_angles(batch["positions"], model.config)
    x, found = model.embedding(batch["tokens"], "float32"), []
    for number in range(model.config.layers):
        layer = jax.tree.map(lambda leaf, number=number: leaf[number], model.layers)
        shared = {name: batch[name] for name in ("positions", "segment_ids")}
        shared |= {"angles": angles, "pages": None, "cache": None}
        h = x + layer.attention(layer.attention_norm(x), **shared)[0]
        found.append(np.array(layer.mlp.router(layer.mlp_norm(h))).reshape(-1, model.config.experts))
        x = layer(x, replay=None, **shared)[0]
    return found, batch["segment_ids"].ravel() > 0


def test_the_loss_balances_as_that_of_transformers_and_leaves_padding_out(package, config):
    model, batch = package.model.Decoder(config, nnx.Rngs(0)), batch_with_padding(config)
    logits, real = router_logits(package, model, batch)
    # of each layer by itself: given several, it pools them
    balances = [
        load_balancing_loss_func(
            (torch.from_numpy(layer),), config.experts, config.experts_per_token, torch.from_numpy(real)
        )
        for layer in logits
    ]
    z = np.mean([np.log(np.exp(layer[real].astype(np.float64)).sum(-1)) ** 2 for layer in logits])
    for balance, weight in (0.5, 0.0), (0.0, 0.25), (0.0, 0.0):
        settings = dataclasses.replace(config, load_balance=balance, router_z=weight)
        total, sums = package.step.loss(model, batch, settings)
        terms = (balance * float(np.mean(balances)) + weight * z) * sums["targets"]
        np.testing.assert_allclose(total - sums["cross_entropy"], terms, rtol=1e-4, atol=1e-4)


def test_layers_that_collapse_on_different_experts_are_not_balanced(package, config):
    """All tokens of layer 0 go to expert 0, those of layer 1 to expert 1: each layer is as far off as can be."""
    config = dataclasses.replace(config, layers=4, experts=4, experts_per_token=1, load_balance=1.0, router_z=0.0)
    model, batch = package.model.Decoder(config, nnx.Rngs(0)), batch_with_padding(config)
    # an input that is the same for all tokens, and of which each router makes another expert
    model.embedding.table[...] = model.embedding.table[...].at[:, 0].set(1e3)
    routers = np.zeros((4, config.width, 4), np.float32)
    routers[np.arange(4), 0, np.arange(4)] = 100
    model.layers.mlp.router.kernel[...] = jnp.asarray(routers)
    total, sums = package.step.loss(model, batch, config)
    np.testing.assert_array_equal(sums["expert_load"], np.eye(4) * (batch["segment_ids"] > 0).sum())
    np.testing.assert_allclose((total - sums["cross_entropy"]) / sums["targets"], 4, rtol=1e-5)


@pytest.mark.slow
def test_microbatches_are_balanced_together(package, config):
    """A row of the batch for itself, with padding and targets of its own, changes no gradient of the whole."""
    config = dataclasses.replace(config, load_balance=10.0, router_z=1.0, max_gradient_norm=1e9)
    model, batch = package.model.Decoder(config, nnx.Rngs(0)), batch_with_padding(config)

    @jax.jit
    @jax.grad
    def mean_loss(model):
        total, sums = package.step.loss(model, batch, config)
        return total / sums["targets"]

    moments = []  # the first is the gradient times 1 - adam_b1
    for accumulation in 1, 3:
        divided = dataclasses.replace(config, accumulation=accumulation)
        step = jax.jit(functools.partial(package.step.train_step, config=divided))
        state, _ = step(package.step.new_state(divided, model), batch)
        moments.append(jax.tree.leaves(state.opt_state[1][0].mu))
    for gradient, whole, parts in zip(jax.tree.leaves(mean_loss(model)), *moments, strict=True):
        for moment in whole, parts:
            expected = np.asarray(gradient) * (1 - config.adam_b1)
            np.testing.assert_allclose(moment, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_only_a_batch_that_is_cut_is_passed_through_twice(package, config):
    model, batch = package.model.Decoder(config, nnx.Rngs(0)), batch_with_padding(config)
    sums = package.step.sum_batch(model, batch, config)
    assert config.accumulation == 3
    for name, found in sums.items():
        np.testing.assert_allclose(found, package.step.loss(model, batch, config)[1][name], err_msg=name)
    assert package.step.sum_batch(model, batch, dataclasses.replace(config, accumulation=1)) is None


@pytest.mark.slow
def test_the_load_of_experts_is_counted_in_each_layer(package, config):
    model, batch = package.model.Decoder(config, nnx.Rngs(0)), batch_with_padding(config)
    logits, real = router_logits(package, model, batch)
    expected = [
        np.bincount(np.argsort(layer[real])[:, -config.experts_per_token :].ravel(), minlength=config.experts)
        for layer in logits
    ]
    np.testing.assert_array_equal(package.step.loss(model, batch, config)[1]["expert_load"], expected)
    _, metrics = jax.jit(package.step.train_step, static_argnums=2)(
        package.step.new_state(config, model), batch, config
    )
    np.testing.assert_allclose(metrics["train/expert_load"], np.max(expected) / np.mean(expected), rtol=1e-6)


@pytest.mark.parametrize("case", mostly_slow(["every_second", "all_but_the_first"], "every_second"))
def test_the_losses_are_of_the_layers_that_have_experts(case, tmp_path):
    family = FAMILIES["qwen3_moe"]
    hf = json.loads(transformers.Qwen3MoeConfig(**family.settings | family.cases[case].settings).to_json_string())
    text = fit(LIBRARY, "qwen3_moe", "cpu", hf, case, "config.json")
    library = with_architecture(case, text)
    package = woven(case, "cpu", tmp_path, library)
    settings = dict(dtype="float32", vocab_size=32, load_balance=1.0, init_std=1e-4)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **settings)
    model, batch = package.model.Decoder(config, nnx.Rngs(0)), batch_with_padding(config)
    total, sums = package.step.loss(model, batch, config)
    sparse, tokens = {"every_second": 2, "all_but_the_first": 3}[case], (batch["segment_ids"] > 0).sum()
    assert sums["expert_load"].shape == (sparse, config.experts)
    np.testing.assert_array_equal(sums["expert_load"].sum(axis=-1), [tokens * config.experts_per_token] * sparse)
    # routers with weights near zero spread their scores evenly: then the loss is the number of chosen experts
    balance = (total - sums["cross_entropy"]) / sums["targets"]
    np.testing.assert_allclose(balance, config.experts_per_token, rtol=1e-3)


def test_a_batch_of_padding_alone_has_no_loss(package, config):
    batch = batch_with_padding(config)
    empty = {name: np.zeros_like(batch[name]) for name in ("segment_ids", "weights")}
    total, _ = package.step.loss(package.model.Decoder(config, nnx.Rngs(0)), batch | empty, config)
    assert total == 0


def test_flops_count_the_experts_that_a_token_goes_to(package):
    config = package.config.PRESETS["8x7b"]
    # 12.88 G parameters are active of a token, of which the embedding (0.131 G) and norms take part in no product
    products = package.monitor.flops_per_token(dataclasses.replace(config, sequence_length=0), causal=False) / 6
    assert products == pytest.approx(12.879e9 - 0.131e9, abs=2e6)


def products(jaxpr: jax.extend.core.Jaxpr) -> Iterator[jax.extend.core.JaxprEqn]:
    """The matrix products in it, within loops and calls too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from products(inner)


@pytest.mark.parametrize("target", mostly_slow(["tpu", "gpu"], "tpu"))
def test_the_router_multiplies_in_fp32_forward_and_backward(target, tmp_path):
    """Which is not what fp32 operands get there by default: TPUs round them to bf16, GPUs to TF32."""
    package = woven("mixtral", target, tmp_path)
    config = dataclasses.replace(package.config.PRESETS["tiny"], experts=19, layers=2, batch_size=1, remat="full")
    model = jax.eval_shape(lambda: package.model.Decoder(config, nnx.Rngs(0)))

    def summed(model, batch):
        return package.step.loss(model, batch, config)[0]

    # of a loop over layers, which JAX differentiates after it has traced it
    jaxpr = jax.make_jaxpr(jax.grad(summed))(model, abstract_batch(1, 16)).jaxpr
    # operands and result of the product, again for the backward pass, of the gradient of x, and of that of the kernel
    routers = [eqn for eqn in products(jaxpr) if any(19 in v.aval.shape[-2:] for v in (*eqn.invars, *eqn.outvars))]
    assert len(routers) == 4
    for product in routers:
        assert product.params["precision"] == (jax.lax.Precision.HIGHEST,) * 2
        assert all(v.aval.dtype == jnp.float32 for v in product.invars)


def compare_meshes(package) -> None:
    """With tokens that stay in place."""
    config = dataclasses.replace(small(package), experts=8, heads=8, kv_heads=8, head_size=4, expert_width=24)
    compare_with_one(package, config, lambda model: model.layers.mlp.experts.up.kernel)


@pytest.mark.slow  # tests/distributed has meshes of experts too
def test_any_mesh_gives_what_one_device_gives(package):
    assert on_eight_devices(compare_meshes, package) == [f"same on {sizes}" for sizes in MESHES]


def ragged_dot(x, kernel, *, group_sizes, transpose_rhs=False, **tiles):
    """What JAX's kernel for Hopper gives, in plain JAX."""
    return jax.lax.ragged_dot(x, jnp.swapaxes(kernel, 1, 2) if transpose_rhs else kernel, group_sizes)


def transposed_ragged_dot(x, dy, *, group_sizes, **tiles):
    contracted = jax.lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])
    return jax.lax.ragged_dot_general(x, dy, group_sizes, contracted)


def compare_hopper(package) -> None:
    """Without the kernels, which run on a Hopper alone: their gradients, and how these vary over devices."""
    package.model.ragged_dot, package.model.transposed_ragged_dot = ragged_dot, transposed_ragged_dot

    def product(x, kernel, sizes):
        varying_as = package.parallel.varying_as
        return package.model.hopper_product(varying_as(x, kernel), varying_as(kernel, x), sizes)

    package.model.grouped_product = product
    sizes = dict(experts=8, expert_width=16, batch_size=8, heads=8, kv_heads=8, head_size=8)
    config = dataclasses.replace(small(package), **sizes)
    compare_with_one(package, config, lambda model: model.layers.mlp.experts.gate.kernel)
    sharded, package.model.grouped_product = product, package.model.blocks_product
    model, tokens = package.model.Decoder(config, nnx.Rngs(0)), np.arange(8 * 16).reshape(8, 16) % 32

    def gradient():
        return jax.tree.leaves(jax.jit(jax.grad(lambda model: (model(tokens) ** 2).mean()))(model))

    by_blocks = gradient()
    package.model.grouped_product = sharded
    for ours, theirs in zip(gradient(), by_blocks, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_gradients_of_the_kernels_for_hopper(tmp_path):
    on_eight_devices(compare_hopper, with_router_z("gpu", tmp_path))


def compare_tpu(package) -> None:
    """Without the kernel, which cannot be interpreted over devices: how its gradients vary over them."""
    sizes = dict(experts=8, expert_width=16, batch_size=8, heads=8, kv_heads=8, head_size=8)
    sys.modules[package.model.grouped_product.__module__].ROWS = 8
    config = dataclasses.replace(small(package), **sizes)
    compare_with_one(package, config, lambda model: model.layers.mlp.experts.gate.kernel)


@pytest.mark.slow
def test_gradients_of_the_kernel_for_tpus(tmp_path):
    on_eight_devices(compare_tpu, with_router_z("tpu", tmp_path))


def test_sums_of_groups_are_those_of_a_loop(tmp_path):
    product, rng = with_router_z("tpu", tmp_path).model.grouped_product, np.random.default_rng(0)
    group_sums = sys.modules[product.__module__].group_sums
    for sizes, R, I, O in (([114, 0, 272, 88], 512, 128, 256), ([3, 0, 0, 100, 20], 128, 1100, 200)):  # noqa: E741
        x, dy = (rng.normal(size=(R, width)).astype(np.float32) for width in (I, O))
        x[sum(sizes) :] = np.nan  # rows of no group
        ours, end = group_sums(x, dy, np.array(sizes), interpret=True), np.cumsum(sizes)
        loop = [x[stop - size : stop].T @ dy[stop - size : stop] for size, stop in zip(sizes, end, strict=True)]
        np.testing.assert_allclose(ours, loop, atol=1e-4)
