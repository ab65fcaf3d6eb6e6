"""Grouped products with JAX's kernels for NVIDIA Hopper, in blocks on other GPUs.

Source: Gale et al. 2022, arXiv 2211.15841, section 5.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.pallas.ops.gpu.ragged_dot_mgpu import ragged_dot
from jax.experimental.pallas.ops.gpu.transposed_ragged_dot_mgpu import transposed_ragged_dot

from generator.language import splice
from generator.language.roles import blocks_product, varying_as

TILES = {"block_m": 128, "block_n": 128, "block_k": 64, "max_concurrent_steps": 5, "grid_block_n": 4}  # measured: H100


@jax.custom_gradient
def hopper_product(x: Array, kernel: Array, sizes: Array) -> Array:
    """Computes `blocks_product` of x [R, I] and kernel [E, I, O] by Hopper's kernels: [R, O]."""

    def backward(dy):
        dx = ragged_dot(dy, kernel, group_sizes=sizes, transpose_rhs=True, **TILES)
        dkernel = transposed_ragged_dot(x, dy, group_sizes=sizes, **TILES)
        return varying_as(dx, x), varying_as(dkernel, kernel), None

    return varying_as(ragged_dot(x, kernel, group_sizes=sizes, **TILES), x), backward


def grouped_product(x: Array, kernel: Array, sizes: Array) -> Array:
    """Computes `hopper_product` on a Hopper if its tiles fit, else `blocks_product`."""
    mesh = jax.sharding.get_abstract_mesh()
    kind = jax.devices()[0].device_kind if mesh.empty else mesh.abstract_device.device_kind
    fits = x.dtype == jnp.bfloat16 and len(x) % 8 == 0 and all(size % 128 == 0 for size in kernel.shape[1:])
    if not (fits and kind.startswith("NVIDIA H")):
        return blocks_product(x, kernel, sizes)
    return hopper_product(varying_as(x, kernel), varying_as(kernel, x), sizes)


@splice("grouped.product", optional=True)
def _(x, kernel, y, sizes):
    y = grouped_product(x, kernel, sizes)
