"""A kernel in NF4: each number is one of 16, times the largest absolute value of its block of 64.

Source: Dettmers et al. 2023, arXiv 2305.14314, section 3 and appendix E.
"""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import requires
from generator.language.roles import InputError

requires("qlora")

# quantiles of a normal distribution, 8 below and 9 from zero on, over the largest: appendix E
NF4_VALUES = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NF4:
    """A kernel in NF4, which stands in for an array."""

    numbers: Array  # uint8: two codes in each, of the first and of the second half of a block
    scale: Array  # fp32, one for each block
    axis: int = dataclasses.field(metadata={"static": True})  # along which blocks lie, counted from the end

    @property
    def shape(self) -> tuple[int, ...]:
        return *self.numbers.shape[: self.axis], 2 * self.numbers.shape[self.axis], *self.numbers.shape[self.axis :][1:]

    def astype(self, dtype: str) -> Array:
        """Returns the dequantized kernel; XLA fuses this into the product."""
        numbers = in_blocks(self.numbers, self.axis, self.scale.shape[self.axis])
        codes = jnp.concatenate([numbers >> 4, numbers & 15], self.axis).astype(np.int32)
        # selected, as TPUs are slow to look up numbers in a table
        values = jax.lax.select_n(codes, *(jnp.full(codes.shape, value) for value in NF4_VALUES))
        return without_blocks(values * jnp.expand_dims(self.scale, self.axis), self.axis).astype(dtype)


def in_blocks(x: Array, axis: int, blocks: int) -> Array:
    """Splits an axis, counted from the end, into blocks and their numbers."""
    return x.reshape(*x.shape[:axis], blocks, -1, *x.shape[axis:][1:])


def without_blocks(x: Array, axis: int) -> Array:
    return jax.lax.collapse(x, axis - 1, axis + 1 or None)


def in_nf4(kernel: Array, axis: int) -> NF4:
    """Quantizes a kernel in blocks of 64 along an axis, or of the largest power of two that divides it.

    Raises InputError for an odd axis.
    """
    if (size := kernel.shape[axis]) % 2:
        raise InputError(f"nf4: a kernel of shape {[*kernel.shape]} has no pairs along an axis of {size}: use int8")
    blocks = in_blocks(kernel, axis, size // math.gcd(size, 64))
    scale = abs(blocks).max(axis, keepdims=True)
    shares = blocks / jnp.where(scale > 0, scale, 1)
    codes = sum((shares > (a + b) / 2).astype(np.uint8) for a, b in itertools.pairwise(NF4_VALUES))
    first, second = jnp.split(codes, 2, axis)
    return NF4(without_blocks(first << 4 | second, axis), scale.squeeze(axis), axis)
