"""Grouped products for XLA backends that would multiply every row by the kernel of every group.

Source: Gale et al. 2022, arXiv 2211.15841, section 5 (block-sparse products).
"""

import jax.numpy as jnp
from jax import Array

from generator.language import point, splice


def blocks_product(x: Array, kernel: Array, sizes: Array) -> Array:
    """Multiplies the first sizes[0] rows of x [R, I] by kernel[0] of [E, I, O], the next sizes[1] by kernel[1]: [R, O].

    Pads the rows of each group to blocks of S rows, for a batched product of blocks.
    """
    R, E = len(x), len(sizes)
    S = max(8, R // (4 * E))
    N = min(R, R // S + E)  # upper bound on the number of blocks
    blocks = -(-sizes // S)  # [E]
    ends = jnp.cumsum(blocks)
    with point("blocks_product.group", ends, N, E, R, S):
        group = jnp.searchsorted(ends, jnp.arange(N), side="right")  # [N]
    padding = (ends - blocks) * S - (jnp.cumsum(sizes) - sizes)  # [E], rows of padding before each group
    with point("blocks_product.slots", padding, sizes, R, E, N, S):
        slots = jnp.arange(R) + jnp.repeat(padding, sizes, total_repeat_length=R)
    x = jnp.zeros((N * S, x.shape[1]), x.dtype).at[slots].set(x, unique_indices=True)
    y = jnp.einsum("NSI,NIO->NSO", x.reshape(N, S, -1), kernel.at[group].get(mode="clip"))
    return y.reshape(N * S, -1).at[slots].get(unique_indices=True)


@splice("ExpertLinear.grouped", optional=True)
def _(x, kernel, y, sizes):
    with point("grouped.product", x, kernel, sizes):
        y = blocks_product(x, kernel, sizes)
