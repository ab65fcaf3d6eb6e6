"""Delayed scaling of products in fp8: a training step scales by the largest numbers of the steps before.

Source: Micikevicius et al. 2022, arXiv 2209.05433.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array
from optax.microbatching import Accumulator

from generator.language import proceed, requires, splice
from generator.language.roles import multiply, power_of_two

requires("fp8")


class Config:
    amax_history: int = 16  # steps whose largest numbers set the scales of the next one


@splice("TrainState.fields")
def _():
    amaxes: dict[str, nnx.Param] = dataclasses.field(default_factory=dict, kw_only=True)  # see `delayed_product`


def rounded(x: Array, amaxes: Array, dtype: type) -> tuple[Array, Array]:
    """Returns x in fp8, cut off where it exceeds its largest number of the steps before, and its scale."""
    most = float(jnp.finfo(dtype).max)
    largest = amaxes.max()
    scale = power_of_two(jnp.where(largest > 0, largest, most) / most)  # about 1 in the first step
    return jnp.clip(x / scale, -most, most).astype(dtype), scale


def delayed_product(equation: str, x: Array, kernel: Array, amaxes: Array) -> Array:
    """Computes `low_precision_product` with scales from earlier steps.

    amaxes [3, H] has the largest numbers of x, kernel and dy in H steps, the last one first. What stands for its
    gradient is the next amaxes, so that those of dy, which only the backward pass has, reach the step with the others.
    """
    inputs, weights, outputs = equation.replace("->", ",").split(",")
    forward, backward = jnp.float8_e4m3fn, jnp.float8_e5m2  # more bits, more range

    @jax.custom_gradient
    def einsum(x, kernel, amaxes):
        low_x, low_kernel = rounded(x, amaxes[0], forward), rounded(kernel, amaxes[1], forward)

        def gradients(dy):
            low_dy = rounded(dy, amaxes[2], backward)
            dx = multiply(f"{outputs},{weights}->{inputs}", low_dy, low_kernel, x.dtype)
            dkernel = multiply(f"{inputs},{outputs}->{weights}", low_x, low_dy, kernel.dtype)
            latest = jnp.stack([jnp.max(jnp.abs(y)).astype(jnp.float32) for y in (x, kernel, dy)])
            return dx, dkernel, jnp.concatenate([latest[:, None], amaxes[:, :-1]], axis=1)

        return multiply(equation, low_x, low_kernel, x.dtype), gradients

    return einsum(x, kernel, amaxes)


def swap_amaxes(model: nnx.Module, amaxes: dict[str, nnx.Param]) -> tuple[nnx.Module, dict[str, nnx.Param]]:
    """Returns the model with these amaxes in its linear maps, by their paths, and those that it had."""
    model, had = nnx.clone(model), {}
    for path, layer in nnx.iter_modules(model):
        if hasattr(layer, "amaxes"):
            name = ".".join(map(str, path))
            had[name], layer.amaxes = layer.amaxes, nnx.data(amaxes.get(name))
    return model, had


def first_amaxes(model: nnx.Module, steps: int) -> dict[str, nnx.Param]:
    """Returns amaxes of zero for each linear map, which stands for no step."""
    first = {}
    for path, layer in nnx.iter_modules(model):
        if hasattr(layer, "amaxes"):
            stack = layer.kernel.shape[: -len(layer.kernel.axes)]  # of layers
            first[".".join(map(str, path))] = nnx.Param(jnp.zeros((*stack, 3, steps)), axes=(None,))
    return first


def sums_and_amaxes() -> Accumulator:
    """Adds up gradients and sums of microbatches; of their amaxes, it keeps the largest."""

    def add(total, part, _):
        return jax.tree_util.tree_map_with_path(
            lambda path, x, y: jnp.maximum(x, y) if "amaxes" in jax.tree_util.keystr(path) else x + y, total, part
        )

    return Accumulator(lambda part: jax.tree.map(jnp.zeros_like, part), add, lambda total: total, lambda parts: parts)


@splice("Linear.parameters")
def _(self):
    self.amaxes: nnx.Param | None = nnx.data(None)  # only a training step has them


@splice("Linear.low_precision")
def _(self, x, y):
    if self.amaxes is None:
        proceed()
    else:
        y = delayed_product(self.equation, x, self.kernel.get_value(), self.amaxes.get_value())


@splice("new_state.made")
def _(state, model, config):
    proceed()
    state = dataclasses.replace(state, amaxes=first_amaxes(model, config.amax_history))


@splice("train_step.accumulate")
def _(accumulate, gradient, config):
    accumulate = optax.microbatch(gradient, 1, config.batch_size // config.accumulation, sums_and_amaxes())


@splice("train_step.gradients")
def _(gradients, sums, accumulate, state, batch):
    scaled_model, _ = swap_amaxes(state.model, state.amaxes)
    gradients, sums = accumulate(scaled_model, batch)
    gradients, amaxes = swap_amaxes(gradients, {})


@splice("train_step.state")
def _(state, finite, amaxes):
    usable = finite & jnp.isfinite(optax.tree.norm(amaxes))
    state = dataclasses.replace(state, amaxes=optax.tree.where(usable, amaxes, state.amaxes))
