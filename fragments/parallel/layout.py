"""Shardings and names of the arrays of a tree."""

import math
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from generator.language import point
from generator.language.roles import RULES, InputError


def abstract(create: Callable[[], Any], mesh: Mesh | None) -> Any:
    """Returns ShapeDtypeStructs of `create()`: each nnx.Param sharded by its axes, others replicated.

    Without a mesh, nothing has a sharding. The leading axis of stacked layers has no name, and is not sharded.
    """

    def lay_out(x):
        if mesh is None or not jax.tree.leaves(x):  # an optimizer may keep no state for a parameter
            return x
        axes = x.axes if isinstance(x, nnx.Param) else ()
        logical = (None,) * (x.ndim - len(axes)) + axes
        for name, size in zip(logical, x.shape, strict=True):
            sizes = {f"--mesh-{axis}": mesh.shape[axis] for axis in RULES.get(name, ())}
            if size % (parts := math.prod(sizes.values())):
                raise InputError(f"{name} of size {size} does not divide over {' x '.join(sizes)}, {parts}")
        with point("abstract.sharding", x, axes, mesh, logical):
            sharding = NamedSharding(mesh, PartitionSpec(*(RULES.get(name) for name in logical)))
        return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding), x)

    return jax.tree.map(lay_out, jax.eval_shape(create), is_leaf=lambda x: isinstance(x, nnx.Param))


def named_arrays(tree: Any) -> dict[str, Array]:
    """Returns the arrays of a pytree by their paths, such as layers.attention.query.kernel."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value"): x for path, x in leaves}
