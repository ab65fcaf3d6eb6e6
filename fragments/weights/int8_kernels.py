"""Weights in int8, with a scale for each vector.

Source: Dettmers et al. 2022, arXiv 2208.07339, section 2.1 (int8 with a scale for each vector).
"""

import dataclasses
import sys

import jax
import numpy as np
from jax import Array

from generator.language import proceed, splice


@splice("ModelSettings.fields")
def _():
    int8: bool = False  # int8 weights


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Int8:
    """A kernel in int8, which stands in for an array."""

    numbers: Array  # int8, in the shape of the kernel
    scale: Array  # fp32, 1 along the width of the residual stream

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def dtype(self) -> np.dtype:
        return self.scale.dtype

    def astype(self, dtype: str) -> Array:
        """Returns the dequantized kernel; XLA fuses this into the product."""
        return (self.numbers * self.scale).astype(dtype)


def in_int8(kernel: np.ndarray, axis: int) -> Int8:
    """Quantizes a kernel symmetrically: the largest absolute value along the axis becomes 127."""
    scale = np.maximum(np.abs(kernel).max(axis, keepdims=True), 1e-30) / 127
    return Int8(np.rint(kernel / scale).astype(np.int8), scale)


@splice("load_to_serve.start")
def _():
    errors = []  # relative errors of int8 kernels


@splice("load_to_serve.cast")
def _(settings, name, p, is_matrix, value, errors):
    if settings.int8 and is_matrix and "kernel" in name:
        width = next(i for i, axis in enumerate(p.axes) if axis and "embed" in axis) - len(p.axes)
        kernel = value.astype(np.float32)
        value = in_int8(kernel, width)
        errors.append(np.linalg.norm(value.astype(np.float32) - kernel) / np.linalg.norm(kernel))
    else:
        proceed()


@splice("load_to_serve.loaded")
def _(errors):
    if errors:
        print(f"int8 kernels: relative root-mean-square error {np.mean(errors):.2%}", file=sys.stderr)


@splice("pages_that_fit.remedy", optional=True)
def _(remedy):
    remedy += ", or give --int8"
