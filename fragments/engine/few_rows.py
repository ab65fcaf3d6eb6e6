"""Products of few rows on CPUs, as decode steps have them."""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import proceed, requires, splice

requires("unstacked", "engine/device")

FEW = 64  # rows, from which on the order of the factors makes no difference


def multiply_few(x: Array, kernel: Array) -> Array:
    """Computes x [B, T, ...] times kernel [..., ...], summed over the axes of x after T, in fp32.

    XLA's CPU library rearranges the right factor in each product, and the left one not: the kernel is the left one.
    The barrier keeps XLA from changing the order. A kernel that an engine stores transposed is not copied.
    """
    shape = *x.shape[:2], *kernel.shape[x.ndim - 2 :]
    x = x.reshape(shape[0] * shape[1], -1)
    y = jnp.einsum("IO,RI->OR", kernel.reshape(x.shape[1], -1), x)
    return jax.lax.optimization_barrier(y).T.reshape(shape)


@splice("product.forward")
def _(x, kernel, y, inputs, weights, outputs):
    is_linear = f"{inputs[:2]}{weights}" == f"{inputs}{outputs[2:]}"
    if is_linear and x.dtype == jnp.float32 and x.shape[0] * x.shape[1] <= FEW:
        y = multiply_few(x, kernel.astype(x.dtype))
    else:
        proceed()
