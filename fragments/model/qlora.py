"""QLoRA: adapters beside kernels that are frozen in NF4 or int8.

Source: Dettmers et al. 2023, arXiv 2305.14314, section 3.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import numpy as np
from flax import nnx
from jax import Array

from generator.language import excludes, proceed, requires, splice
from generator.language.roles import NF4, Decoder, Int8, LazyArray, Linear, in_int8, in_nf4, product, projections

requires("lora")
excludes("scaled_product", "ema")


class ModelConfig:
    quantize_base: Literal["none", "int8", "nf4"] = "none"  # format of the kernels that adapters leave as they are


class Quantized(nnx.Param):
    """An array of a quantized kernel, which is neither trained nor cast."""


class QuantizedKernel(nnx.Module):
    """A quantized kernel in the place of an nnx.Param, each of its arrays with logical axes."""

    def __init__(self, value: Int8 | NF4, axes: tuple[str | None, ...]):
        (numbers, scale), self.structure = jax.tree.flatten(value)
        self.axes = axes
        self.numbers = Quantized(numbers, axes=axes)
        if isinstance(value, Int8):  # of which each device has all of the axis that shares a scale
            axes = tuple(
                None if size == 1 else axis for size, axis in zip(scale.shape[-len(axes) :], axes, strict=True)
            )
        self.scale = Quantized(scale, axes=axes)  # of NF4 split as the numbers, so that blocks stay whole

    def get_value(self) -> Int8 | NF4:
        return jax.tree.unflatten(self.structure, (self.numbers.get_value(), self.scale.get_value()))

    def astype(self, dtype: str) -> Array:
        return self.get_value().astype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.get_value().shape


QUANTIZE = {"int8": in_int8, "nf4": in_nf4}


def frozen(model: Decoder) -> Iterator[tuple[Linear, int]]:
    """Yields the projections, and the last axis that each sums over, counted from the end."""
    for _, linear in list(projections(model)):
        _, kernel, y = linear.equation.replace("->", ",").split(",")
        yield linear, max(place for place, letter in enumerate(kernel) if letter not in y) - len(kernel)


def quantize_kernels(model: Decoder, form: str) -> None:
    """Quantizes the kernels of all projections, if `form` is a format; those that are read later are quantized then."""
    for linear, axis in frozen(model) if form in QUANTIZE else ():
        quantize = functools.partial(QUANTIZE[form], axis=axis)
        kernel = linear.kernel.get_value()
        value: Int8 | NF4 = later(quantize, kernel) if isinstance(kernel, LazyArray) else quantize(kernel)
        linear.kernel = QuantizedKernel(value, linear.kernel.axes)


def dequantize_later(model: Decoder) -> None:
    """Replaces quantized kernels that are read later by what they stand for."""
    for linear, _ in frozen(model):
        if isinstance(linear.kernel, QuantizedKernel):
            kernel: LazyArray = later(lambda value: value.astype("float32"), linear.kernel.get_value())
            linear.kernel = nnx.Param(kernel, axes=linear.kernel.axes)


def later(function: Callable, tree: Any) -> Any:
    """Returns what a function makes of stacks that are read later: read later too, layer by layer to save memory."""
    compiled = jax.jit(function)
    arrays, structure = jax.tree.flatten(tree)
    made, outer = jax.tree.flatten(jax.eval_shape(function, tree))

    def read(place: str) -> np.ndarray:
        layers = (jax.tree.unflatten(structure, layer) for layer in zip(*map(np.asarray, arrays), strict=True))
        return np.stack([jax.tree.leaves(compiled(layer))[int(place)] for layer in layers])

    return jax.tree.unflatten(outer, [LazyArray(x, read, str(place)) for place, x in enumerate(made)])


def quantized_product(equation: str, x: Array, kernel: Int8 | NF4) -> Array:
    """Computes `product` with a frozen kernel. Both passes dequantize it, so that no copy is kept in between."""
    inputs, weights, outputs = equation.replace("->", ",").split(",")

    @jax.custom_gradient
    def einsum(x, kernel):
        def backward(dy):
            return product(f"{outputs},{weights}->{inputs}", dy, kernel.astype(x.dtype)), None

        return product(equation, x, kernel.astype(x.dtype)), backward

    return einsum(x, kernel)


@splice("Linear.product")
def _(self, x, y):
    if isinstance(self.kernel, QuantizedKernel):
        y = quantized_product(self.equation, x, self.kernel.get_value())
    else:
        proceed()


@splice("Decoder.parameters", after="lora")
def _(self, config):
    quantize_kernels(self, config.quantize_base)


@splice("with_matrices_in.cast", optional=True)
def _(dtype, cast):
    def cast(p):
        is_kept = len(p.axes) < 2 or isinstance(p, Quantized)
        return p if is_kept else p.replace(p.get_value().astype(dtype))


@splice("with_matrices_in.fp32", after="expert_bias", optional=True)
def _(p, is_used_in_fp32):
    is_used_in_fp32 = is_used_in_fp32 or isinstance(p, Quantized)


@splice("gather.sent", after="expert_bias", optional=True)
def _(p, sent):
    proceed()
    if isinstance(p, Quantized):
        sent = p.dtype  # whose bits count


@splice("checksums_on_host.read")
def _(read):
    read = (x if x.itemsize == 4 else x.view("uint8").astype("uint32") for x in read)


@splice("load_checkpoint.found")
def _(config, model, mesh):
    if mesh is None:
        config = dataclasses.replace(config, quantize_base="none")
        dequantize_later(model)
