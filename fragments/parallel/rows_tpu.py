"""Row-major layout of the residual stream on TPUs, in the forward and the backward pass."""

import functools
import math

import jax
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import PartitionSpec

from generator.language import point, proceed, splice
from generator.language.roles import RULES


def lay_out_rows(x: Array, axes: tuple[str | None, ...]) -> Array:
    """Asks for the row-major layout of each device's part of x: laid out as a whole, XLA would gather it."""
    mesh = jax.sharding.get_abstract_mesh()
    if x.shape[0] % math.prod(mesh.shape[axis] for axis in RULES["batch"]):
        return x  # fewer rows than devices, in generation
    spec = PartitionSpec(*(RULES.get(axis) for axis in axes))
    lay_out = functools.partial(with_layout_constraint, layouts=Layout(tuple(range(x.ndim))))
    return jax.shard_map(lay_out, in_specs=spec, out_specs=spec)(x)


@splice("shard.constrain", after="sequence_parallel")
def _(x, axes):
    proceed()
    if axes[-1] == "residual":  # otherwise XLA chooses a layout for each pass, and copies residuals between them
        with point("shard.rows", x):
            x = lay_out_rows(x, axes)
