"""Models as an engine takes them: over the devices that share them, in the dtype of the computation."""

import dataclasses

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from generator.language.roles import (
    Config,
    Decoder,
    InputError,
    MeshError,
    abstract,
    load_checkpoint,
    make_mesh,
    open_hf_model,
)


def load_to_serve(checkpoint_dir: str, hf: str, dtype: str | None, tensor: int) -> tuple[Config, Decoder, Mesh]:
    """The model of the one directory that is given, tensor by tensor, over so many devices.

    Matrices get the dtype in which products take them (None: as it was trained); vectors and routers, which are used in
    fp32, stay as they are.
    """
    if bool(hf) == bool(checkpoint_dir):
        raise InputError("give --checkpoint-dir, or --hf")
    devices = jax.devices()
    if not 1 <= tensor <= len(devices):
        raise MeshError(f"--mesh-tensor {tensor}: there are {len(devices)} devices: give 1 to {len(devices)}")
    mesh = make_mesh(1, 1, tensor, devices[:tensor])
    config, model = open_hf_model(hf) if hf else load_checkpoint(checkpoint_dir, None)
    config = dataclasses.replace(config, dtype=dtype or config.dtype)
    laid_out = abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh)

    def load(path: tuple[jax.tree_util.KeyEntry, ...], p: nnx.Param, later: nnx.Param) -> nnx.Param:
        is_matrix = len(p.axes) > 1 and "router" not in jax.tree_util.keystr(path)
        array = np.asarray(later.get_value()).astype(config.dtype if is_matrix else p.dtype)
        return p.replace(jax.device_put(array, p.get_value().sharding))

    def is_param(x: object) -> bool:
        return isinstance(x, nnx.Param)

    leaves = jax.tree.leaves(model, is_leaf=is_param)
    model = jax.tree.unflatten(jax.tree.structure(laid_out, is_leaf=is_param), leaves)
    return config, jax.tree_util.tree_map_with_path(load, laid_out, model, is_leaf=is_param), mesh
