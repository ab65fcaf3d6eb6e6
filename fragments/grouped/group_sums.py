"""Grouped products on TPUs, with a kernel for the gradient of the experts' kernels.

Later libtpus compile `ragged_dot` and both its gradients into kernels. In that of JAX 0.10 (libtpu 0.0.42), this
gradient is a product of all rows for each expert: in a step of Qwen3-30B-A3B, more than four times all else.

Source: Gale et al. 2022, arXiv 2211.15841, section 5.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from generator.language import splice
from generator.language.roles import varying_as

ROWS = 128  # of a tile; of more rows, more belong to other groups
COLUMNS = 1024
OF_GROUPS = jax.lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])  # contracts the rows of each group
OF_OUTPUTS = jax.lax.RaggedDotDimensionNumbers((((1,), (2,)), ((), ())), [0], [0])  # dy [R, O] with kernels [E, I, O]


def plan_steps(sizes: Array, tiles: int) -> tuple[Array, Array, Array, Array]:
    """Plans a step for each tile of rows and group in it, and one for an empty group: at most tiles + E steps.

    Returns where groups start, and the last one ends [E + 1]; each step's group and tile; how many steps there are.
    """
    ends = jnp.cumsum(sizes)
    starts = ends - sizes
    first = starts // ROWS
    counts = jnp.where(sizes > 0, -(-ends // ROWS) - first, 1)
    next_step = jnp.cumsum(counts)
    step = jnp.arange(tiles + len(sizes))
    group = jnp.sum(next_step <= step[:, None], axis=1).clip(max=len(sizes) - 1)  # by sums: a search is a loop
    tile = (first - next_step + counts)[group] + step
    return jnp.append(starts, ends[-1]), group, tile.clip(max=tiles - 1), next_step[-1]


def group_sum(offsets, groups, tiles, x, dy, out, total):
    """Adds the product of a tile of rows to the sum of its group, in grid step (tile of O, tile of I, tile of rows)."""
    step = pl.program_id(2)
    last = pl.num_programs(2) - 1
    group = groups[step]
    row = tiles[step] * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, 1), 0)

    @pl.when((step == 0) | (groups[jnp.maximum(step - 1, 0)] != group))
    def _():
        total[...] = jnp.zeros_like(total)

    is_own = (offsets[group] <= row) & (row < offsets[group + 1])
    left, right = (jnp.where(is_own, y[...].astype(jnp.float32), 0) for y in (x, dy))
    total[...] += jnp.dot(left.T.astype(x.dtype), right.astype(x.dtype), preferred_element_type=jnp.float32)

    @pl.when((step == last) | (groups[jnp.minimum(step + 1, last)] != group))
    def _():
        out[...] = total[...].astype(out.dtype)


def group_sums(x: Array, dy: Array, sizes: Array, interpret: bool = False) -> Array:
    """Computes the product of the rows of each group: x [R, I], dy [R, O], sizes [E] -> [E, I, O]."""
    (R, I), O, E = x.shape, dy.shape[1], len(sizes)  # noqa: E741
    *plan, count = plan_steps(sizes, R // ROWS)
    inner, outer = min(I, COLUMNS), min(O, COLUMNS)
    return pl.pallas_call(
        group_sum,
        jax.ShapeDtypeStruct((E, I, O), x.dtype, manual_axis_type=jax.typeof(dy).manual_axis_type),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(pl.cdiv(O, outer), pl.cdiv(I, inner), count),
            in_specs=[
                pl.BlockSpec((ROWS, inner), lambda o, i, step, offsets, groups, tiles: (tiles[step], i)),
                pl.BlockSpec((ROWS, outer), lambda o, i, step, offsets, groups, tiles: (tiles[step], o)),
            ],
            out_specs=pl.BlockSpec(
                (None, inner, outer), lambda o, i, step, offsets, groups, tiles: (groups[step], i, o)
            ),
            scratch_shapes=[pltpu.VMEM((inner, outer), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary")),
        interpret=interpret,
        name="gmm_groups",
    )(*plan, x, dy)


def kernel_gradient(x: Array, dy: Array, sizes: Array) -> Array:
    """Computes `group_sums` by the kernel on a TPU, if tiles divide the rows."""
    by_xla = functools.partial(jax.lax.ragged_dot_general, ragged_dot_dimension_numbers=OF_GROUPS)
    if len(x) % ROWS:
        return by_xla(x, dy, sizes)
    return jax.lax.platform_dependent(x, dy, sizes, tpu=group_sums, default=by_xla)


@jax.custom_gradient
def product_of_groups(x: Array, kernel: Array, sizes: Array) -> Array:
    """Computes `grouped_product`, of arrays that vary alike."""

    def backward(dy):
        dx = jax.lax.ragged_dot_general(dy, kernel, sizes, OF_OUTPUTS)
        return dx, kernel_gradient(x, dy, sizes), None

    return jax.lax.ragged_dot(x, kernel, sizes), backward


def grouped_product(x: Array, kernel: Array, sizes: Array) -> Array:
    """Multiplies the rows of each group of x [R, I] by its kernel of [E, I, O]: [R, O]. Groups have sizes [E]."""
    return product_of_groups(varying_as(x, kernel), varying_as(kernel, x), sizes)


@splice("ExpertLinear.grouped", optional=True)
def _(x, kernel, y, sizes):
    y = grouped_product(x, kernel, sizes)
