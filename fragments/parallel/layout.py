"""Layouts and names of the arrays of a tree."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from generator.roles import shardings


def abstract(create: Callable[..., Any], mesh: Mesh, *arguments) -> Any:
    """What `create` returns, as ShapeDtypeStructs: each nnx.Param laid out over the mesh by its axes, others copied."""

    def layout(leaf):
        return shardings(leaf, mesh) if isinstance(leaf, nnx.Param) else NamedSharding(mesh, PartitionSpec())

    tree = jax.eval_shape(create, *arguments)
    layouts = jax.tree.map(layout, tree, is_leaf=lambda leaf: isinstance(leaf, nnx.Param))
    return jax.tree.map(lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree, layouts)


def named_arrays(tree: Any) -> dict[str, Array]:
    """The arrays of a pytree by their paths, such as layers.attention.query.kernel."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value"): x for path, x in leaves}
