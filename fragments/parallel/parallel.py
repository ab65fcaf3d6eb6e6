"""Sharding by named logical axes."""

import math
from typing import Literal

import jax
from flax import nnx
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from generator.marks import point, setting


class Config:
    mesh_data: int = 1  # groups of devices with a copy of the parameters each; in mesh_*, one -1 takes the devices left
    mesh_fsdp: int = -1  # devices that share the parameters and the batch
    mesh_tensor: int = 1  # devices that share the heads and the inner feed-forward
    remat: Literal["none", "dots", "full"] = setting("remat")  # what the backward pass computes again: see REMAT


# Logical axis -> mesh axes. An axis that is not here (None in a spec) is not split.
RULES = {
    "batch": ("data", "fsdp"),
    "sequence": None,
    "residual": None,  # the width of an activation
    "embed": "fsdp",  # the width in a parameter
    "heads": "tensor",
    "kv_heads": "tensor",
    "head_size": None,
    "mlp": "tensor",
    "vocab": "tensor",
}


class MeshError(ValueError):
    """Sizes that do not divide over the devices; the message names them and the setting to change."""


def make_mesh(data: int = 1, fsdp: int = -1, tensor: int = 1, devices: list[jax.Device] | None = None) -> Mesh:
    """The mesh (data, fsdp, tensor) of all devices, or of those given. One size may be -1: it takes those left over."""
    point("make_mesh.start")
    devices = jax.devices() if devices is None else devices
    sizes = {"data": data, "fsdp": fsdp, "tensor": tensor}
    wanted = ", ".join(f"--mesh-{axis} {size}" for axis, size in sizes.items())
    free = [axis for axis, size in sizes.items() if size == -1]
    if len(free) > 1 or any(size < 1 for size in sizes.values() if size != -1):
        raise MeshError(f"{wanted}: each size must be at least 1, and one of them may be -1")
    known = math.prod(size for size in sizes.values() if size != -1)
    sizes |= {axis: len(devices) // known for axis in free}
    if math.prod(sizes.values()) != len(devices):
        raise MeshError(f"{wanted}: {len(devices)} devices do not divide into a mesh of these sizes")
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), (AxisType.Auto,) * len(sizes), devices=devices)


def shard(x: Array, *axes: str | None) -> Array:
    """Lays an activation out by its logical axes over the mesh that jax.set_mesh set; without one, x as it is."""
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*(RULES.get(axis) for axis in axes)))


def shardings(tree, mesh: Mesh):
    """A NamedSharding for each nnx.Param of an (abstract) model, from the logical axes in its `axes`.

    A stacked parameter has a leading axis of layers, which its `axes` do not name and which is not split.
    """

    def layout(param):
        logical = (None,) * (param.ndim - len(param.axes)) + param.axes
        for name, size in zip(logical, param.shape, strict=True):
            axis = RULES.get(name)
            if axis and size % mesh.shape[axis]:
                raise MeshError(f"{name} of size {size} does not divide over --mesh-{axis} {mesh.shape[axis]}")
        return param.replace(NamedSharding(mesh, PartitionSpec(*(RULES.get(name) for name in logical))))

    return jax.tree.map(layout, tree, is_leaf=lambda leaf: isinstance(leaf, nnx.Param))
