"""The rows, the devices and the errors of one of several processes that sample together."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from generator.language import requires
from generator.language.roles import Decoder, InputError, on_all_processes

requires("cluster/agreement")


def own_rows(sharding: NamedSharding, shape: tuple[int, int], group: int, batches: int) -> list[int]:
    """Returns the rows of a batch that this process holds, in groups once there are so many batches.

    Raises InputError if others hold them as well.
    """
    holders = dict[int, set[int]]()
    for device, (rows, *_) in sharding.devices_indices_map(shape).items():
        for row in range(shape[0])[rows]:
            holders.setdefault(row, set()).add(device.process_index)
    if any(len(processes) > 1 for processes in holders.values()):
        raise InputError(
            "--mesh-tensor: processes share sequences, and each is to sample its own: "
            "let only --mesh-data and --mesh-fsdp span processes"
        )
    rows_here = [row for row in sorted(holders) if holders[row] == {jax.process_index()}]
    places = [number * shape[0] + row for number in range(batches) for row in rows_here]
    if any(places[i : i + group] != [*range(places[i], places[i] + group)] for i in range(0, len(places), group)):
        raise InputError(
            f"--group-size {group}: must divide the sequences of a batch that a process holds, {len(rows_here)}: "
            "change it, or --batch-size"
        )
    return rows_here


def on_own_devices(model: Decoder, mesh: Mesh) -> tuple[Decoder, Mesh]:
    """Returns the model on the devices of this process, and their mesh.

    In one of several processes it is a copy, sharded by those axes of the mesh that do not span processes.
    """
    if not mesh.is_multi_process:
        return model, mesh
    is_own = np.vectorize(lambda device: device.process_index == jax.process_index())(mesh.devices)
    local_mesh = Mesh(
        mesh.devices[np.ix_(*map(np.unique, is_own.nonzero()))], mesh.axis_names, axis_types=mesh.axis_types
    )
    if local_mesh.size != is_own.sum():
        raise InputError("--mesh-data, --mesh-fsdp: the devices of a process must be a block of the mesh: change these")

    def inside(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
        return tuple(axis for axis in np.atleast_1d(names or ()) if local_mesh.shape[axis] == mesh.shape[axis])

    def gathered(x: Array) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*map(inside, x.sharding.spec)))

    def local(x: Array) -> Array:
        shards = [shard.data for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(x.shape, NamedSharding(local_mesh, x.sharding.spec), shards)

    gathered_model = jax.jit(lambda model: model, out_shardings=jax.tree.map(gathered, model))(model)
    return jax.tree.map(local, gathered_model), local_mesh


@contextlib.contextmanager
def failing_together() -> Iterator[None]:
    """Raises an error in all processes if a reward or a teacher fails in one."""
    errors = list[Exception]()
    try:
        yield
    except Exception as error:
        errors.append(error)

    def raise_first() -> None:
        for error in errors:
            raise error

    on_all_processes(raise_first)


def gather_numbers(numbers: list[Any]) -> np.ndarray:
    """Returns the numbers of each process, float64 [processes, n]: as pairs of integers, as JAX would round them."""
    pairs = np.ravel(np.array(numbers, np.float64)).view(np.uint32)
    return np.asarray(multihost_utils.process_allgather(pairs)).view(np.float64)


def evaluate_rows(evaluate: Callable, rows: list[int]) -> Callable:
    """Returns a function that evaluates on these rows, and sums over processes."""

    def evaluate_all(model: Decoder, batch: dict[str, Array]) -> dict[str, Any]:
        local = {"prompt": multihost_utils.process_allgather(batch["prompt"], tiled=True)[rows]}
        sums = on_all_processes(lambda: evaluate(model, local))
        numbers, tree = jax.tree.flatten(sums)
        return jax.tree.unflatten(tree, gather_numbers(numbers).sum(axis=0).tolist())

    return evaluate_all
