"""A kernel in int8, with a scale for each vector.

Source: Dettmers et al. 2022, arXiv 2208.07339, section 2.1 (int8 with a scale for each vector).
"""

import dataclasses

import jax
import numpy as np
from jax import Array

from generator.language import requires

requires("int8_kernels or qlora")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Int8:
    """A kernel in int8, which stands in for an array."""

    numbers: Array  # int8, in the shape of the kernel
    scale: Array  # fp32, 1 along the axis that shares it

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def dtype(self) -> np.dtype:
        return self.scale.dtype

    def astype(self, dtype: str) -> Array:
        """Returns the dequantized kernel; XLA fuses this into the product."""
        return (self.numbers * self.scale).astype(dtype)


def in_int8(kernel: Array, axis: int) -> Int8:
    """Quantizes a kernel symmetrically: the largest absolute value along the axis becomes 127."""
    scale = abs(kernel).max(axis, keepdims=True).clip(1e-30) / 127
    return Int8((kernel / scale).round().astype(np.int8), scale)
