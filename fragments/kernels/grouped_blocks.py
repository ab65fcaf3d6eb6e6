"""Products of grouped rows for backends of XLA that would multiply every row with the kernel of every group.

Source: Gale et al. 2022, arXiv 2211.15841, section 5: blocks of rows that meet one kernel.
"""

import jax.numpy as jnp
from jax import Array

from generator.language import point, splice


def blocks_product(x: Array, kernel: Array, sizes: Array) -> Array:
    """Rows x [R, I], of which the first sizes[0] meet kernel[0] of [E, I, O], the next sizes[1] kernel[1]: [R, O].

    The rows of each group fill blocks of S rows, the last one with zeros: a batch of products, which are fast.
    """
    R, E = len(x), len(sizes)
    S = max(8, R // (4 * E))
    N = min(R, R // S + E)  # at most so many blocks
    blocks = -(-sizes // S)  # [E]
    ends = jnp.cumsum(blocks)
    group = jnp.searchsorted(ends, jnp.arange(N), side="right")  # [N]
    padding = (ends - blocks) * S - (jnp.cumsum(sizes) - sizes)  # [E], rows added before each group
    slots = jnp.arange(R) + jnp.repeat(padding, sizes, total_repeat_length=R)
    x = jnp.zeros((N * S, x.shape[1]), x.dtype).at[slots].set(x, unique_indices=True)
    y = jnp.einsum("NSI,NIO->NSO", x.reshape(N, S, -1), kernel.at[group].get(mode="clip"))
    return y.reshape(N * S, -1).at[slots].get(unique_indices=True)


@splice("ExpertLinear.grouped", optional=True)
def _(x, kernel, y, sizes):
    with point("grouped.product", x, kernel, sizes):
        y = blocks_product(x, kernel, sizes)
