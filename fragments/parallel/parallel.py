"""Sharding by named logical axes."""

import math

import jax
from jax import Array
from jax.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh
from jax.sharding import AxisType, Mesh, PartitionSpec

from generator.language import point, setting, splice
from generator.language.roles import RULES, InputError


class Config:
    mesh_data: int = 1  # replicas of the parameters; one of the mesh_* may be -1: it takes the devices left
    mesh_fsdp: int = -1  # devices that shard the parameters and the batch
    mesh_tensor: int = 1  # devices that shard the heads and the inner feed-forward
    remat: str = setting("remat")  # policy: none, full, dots, attention; or kept: query, key_value, out, gate, up, down


@splice("check_config.bounds")
def _(bounds):
    bounds.update(mesh_data=(-1, 2**31 - 1), mesh_fsdp=(-1, 2**31 - 1), mesh_tensor=(-1, 2**31 - 1))


def make_mesh(data: int = 1, fsdp: int = -1, tensor: int = 1, devices: list[jax.Device] | None = None) -> Mesh:
    """Returns the mesh of all devices, or of `devices`. One size may be -1: it takes the devices left."""
    point("make_mesh.start")
    devices = jax.devices() if devices is None else devices
    with point("make_mesh.sizes", data, fsdp, tensor):
        sizes = {"data": data, "fsdp": fsdp, "tensor": tensor}
    flags = ", ".join(f"--mesh-{axis} {size}" for axis, size in sizes.items())
    rest = len(devices) // math.prod(size for size in sizes.values() if size > 0)
    is_valid = min(sizes.values()) >= -1 and [*sizes.values()].count(-1) <= 1
    sizes = {axis: rest if size == -1 else size for axis, size in sizes.items()}
    if not is_valid or math.prod(sizes.values()) != len(devices):
        problem = f"{len(devices)} devices do not divide into these sizes, from a checkpoint or preset unless given"
        raise InputError(f"{flags}: {problem}: each must be at least 1, and one of them may be -1")
    slices = len({getattr(device, "slice_index", 0) for device in devices})  # a GPU node counts as one
    across = dict.fromkeys(sizes, 1)  # slices along each axis
    with point("make_mesh.across", sizes, slices, across):
        across["data"] = math.gcd(sizes["data"], slices)
        across["fsdp"] = slices // across["data"]
    if sizes["fsdp"] % across["fsdp"]:
        problem = f"data x fsdp does not divide over {slices} slices, between which other axes would be too slow"
        raise InputError(f"{flags}: {problem}: give a --mesh-data that is a multiple of {slices}")
    within = [sizes[axis] // across[axis] for axis in sizes]
    try:
        if slices == 1:
            grid = create_device_mesh(within, devices, allow_split_physical_axes=True)
        else:
            grid = create_hybrid_device_mesh(within, [*across.values()], devices, allow_split_physical_axes=True)
    except (NotImplementedError, ValueError, AssertionError) as error:
        problem = f"these sizes cannot be laid over the network of {devices[0].device_kind} x {len(devices)}"
        raise InputError(f"{flags}: {problem}: give sizes that are products of its lengths: {error}") from None
    return Mesh(grid, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def shard(x: Array, *axes: str | None) -> Array:
    """Shards an activation by its logical axes over the mesh of jax.set_mesh; without one, returns x."""
    if jax.sharding.get_abstract_mesh().empty:
        return x
    with point("shard.constrain", x, axes):
        x = jax.lax.with_sharding_constraint(x, PartitionSpec(*(RULES.get(axis) for axis in axes)))
    return x


def gather_whole(x: Array, axes: tuple[str, ...], axis: int, dtype: str) -> Array:
    """Gathers x on each device along these mesh axes, sent in `dtype`; its gradient is summed in x's dtype."""

    @jax.custom_gradient
    def gather(x):
        y = jax.lax.all_gather(x.astype(dtype), axes, axis=axis, tiled=True).astype(x.dtype)
        return y, lambda dy: jax.lax.psum_scatter(dy, axes, scatter_dimension=axis, tiled=True)

    return gather(x)
