"""Arrays of checkpoints that are read, or written, one at a time: a model may be larger than memory."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from generator.language import point, proceed, splice
from generator.language.roles import LazyArray, reading


def are_lazy(arrays: dict[str, Any]) -> bool:
    return any(isinstance(x, LazyArray) for x in arrays.values())


def checksums_on_host(arrays: dict[str, Any]) -> tuple[np.ndarray, bool]:
    """Computes `checksums` of one array after the other."""
    read = (np.asarray(x) for _, x in sorted(arrays.items()))
    point("checksums_on_host.read", read)
    sums, finite = zip(*((x.view("uint32").sum(dtype="uint32"), np.isfinite(x).all()) for x in read), strict=True)
    return np.array(sums), all(finite)


class LazyArrayHandler(ocp.type_handlers.NumpyHandler):
    """Writes arrays one at a time, so that only one is in memory."""

    async def serialize(self, values, infos, args=None):
        for value, info, arg in zip(values, infos, args, strict=True):
            for written in await super().serialize([np.asarray(value)], [info], [arg]):
                written.result()
        return []


def save_lazily(tree: Any) -> ocp.args.PyTreeSave:
    """Returns arguments to save `LazyArray`s in chunks, which take little memory besides the array itself."""
    ocp.type_handlers.register_type_handler(LazyArray, LazyArrayHandler(deepcopy_host_arrays=False), override=True)
    size = 2**25  # bytes of a chunk and of a file
    parts = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=size), tree)
    return ocp.args.PyTreeSave(tree, parts, ocdbt_target_data_file_size=size)


def read_lazily(
    read_item: Callable[[ocp.args.CheckpointArgs], Any], folder: epath.Path, target: dict[str, jax.ShapeDtypeStruct]
) -> tuple[dict[str, LazyArray], np.ndarray]:
    """Returns an item's arrays, which are read and checked whenever NumPy asks for them, and their checksums.

    Args:
        read_item: Reads parts of the item, in the checkpoint `folder`.
        target: Shapes and dtypes of all its arrays by name.
    """

    def read(part):
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), part)
        return read_item(ocp.args.PyTreeRestore(part, restore_args=as_numpy, partial_restore=True))

    sums = read({"checksums": 0})["checksums"]
    saved = dict(zip(sorted(target), sums, strict=True))

    def read_array(name: str) -> np.ndarray:
        with reading(folder):  # files may have changed since
            with point("read_lazily.part", folder, read, name, target):
                array = read({"arrays": {name: target[name]}})["arrays"][name]
            if checksums_on_host({name: array})[0] != saved[name]:
                raise ValueError(f"{name} is not what was saved, by its checksum")
        return array

    return {name: LazyArray(x, read_array, name) for name, x in target.items()}, sums


@splice("Checkpoints.checksums", "Checkpoints.checksums_read")
def _(arrays, sums, finite):
    if are_lazy(arrays):
        sums, finite = checksums_on_host(arrays)
    else:
        proceed()


@splice("Checkpoints.save_item")
def _(arrays, sums, items, item):
    if are_lazy(arrays):
        items[item] = save_lazily({"arrays": arrays, "checksums": sums})
    else:
        proceed()


@splice("Checkpoints.parameters")
def _(self):
    self.is_lazy = False


@splice("load_checkpoint.run")
def _(run, mesh):
    run.is_lazy = mesh is None


@splice("Checkpoints.read_item")
def _(self, step, item, target, arrays, sums):
    if self.is_lazy:
        arrays, sums = read_lazily(functools.partial(self.read, step, item), self.directory / str(step), target)
    else:
        proceed()
