"""Sharding by named logical axes."""

import math
from typing import Annotated

import jax
from jax import Array
from jax.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh
from jax.sharding import AxisType, Mesh, PartitionSpec

from generator.language import point, setting
from generator.language.roles import RULES, InputError


class ParallelConfig:
    """How the run is spread over devices."""

    mesh_data: Annotated[int, -1, 1_000_000] = 1  # replicas of the parameters; one mesh_* may be -1: the devices left
    mesh_fsdp: Annotated[int, -1, 1_000_000] = -1  # devices that shard the parameters and the batch
    mesh_tensor: Annotated[int, -1, 1_000_000] = 1  # devices that shard the heads and the inner feed-forward


class ModelConfig:
    remat: str = setting("remat")  # names in REMAT (parallel.py), with commas: none, full, dots, attention, gate, ...


def make_mesh(data: int = 1, fsdp: int = -1, tensor: int = 1, devices: list[jax.Device] | None = None) -> Mesh:
    """Returns the mesh of all devices, or of `devices`. One size may be -1: it takes the devices left."""
    point("make_mesh.start")
    devices = jax.devices() if devices is None else devices
    # tensor comes last: it sends the most
    sizes = {"data": data, "fsdp": fsdp}
    point("make_mesh.sizes", sizes)
    sizes["tensor"] = tensor
    flags = ", ".join(f"--mesh-{axis} {size}" for axis, size in sizes.items())
    rest = len(devices) // math.prod(size for size in sizes.values() if size > 0)
    shape = {axis: rest if size == -1 else size for axis, size in sizes.items()}
    if [*sizes.values()].count(-1) > 1 or min(shape.values()) < 1 or math.prod(shape.values()) != len(devices):
        raise InputError(f"{flags}: {len(devices)} devices do not divide so: give at least 1; one of them may be -1")
    slices = len({getattr(device, "slice_index", 0) for device in devices})  # a GPU node counts as one
    across = dict.fromkeys(shape, 1)  # slices along each axis
    with point("make_mesh.across", shape, slices, across):
        across["data"] = math.gcd(shape["data"], slices)
        across["fsdp"] = slices // across["data"]
    if shape["fsdp"] % across["fsdp"]:
        raise InputError(f"{flags}: data x fsdp does not divide over {slices} slices: give a multiple as --mesh-data")
    within = [shape[axis] // across[axis] for axis in shape]
    try:
        if slices == 1:
            grid = create_device_mesh(within, devices, allow_split_physical_axes=True)
        else:
            grid = create_hybrid_device_mesh(within, [*across.values()], devices, allow_split_physical_axes=True)
    except (NotImplementedError, ValueError, AssertionError) as error:
        network = f"the network of {len(devices)} {devices[0].device_kind}"
        raise InputError(f"{flags}: cannot be laid over {network}: give products of its lengths: {error}") from None
    return Mesh(grid, tuple(shape), axis_types=(AxisType.Auto,) * len(shape))


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
