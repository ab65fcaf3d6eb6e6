"""Checkpoints of arrays that are read when they are written, one at a time."""

from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from generator.language.roles import LazyArray


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
