"""Weights for serving: sharded over devices, in the dtype of the computation."""

import dataclasses

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from generator.language import point
from generator.language.roles import (
    Config,
    Decoder,
    InputError,
    ModelSettings,
    abstract,
    load_checkpoint,
    make_mesh,
    open_hf_model,
)


def load_to_serve(settings: ModelSettings) -> tuple[Config, Decoder, Mesh]:
    """Loads the model of whichever directory is given, tensor by tensor, sharded over devices.

    Matrices are cast; vectors and routers, which are used in fp32, stay as they are.
    """
    if bool(settings.hf) == bool(settings.checkpoint_dir):
        raise InputError("give either --checkpoint-dir or --hf")
    devices = jax.devices()
    tensor = settings.mesh_tensor
    if not 1 <= tensor <= len(devices):
        raise InputError(f"--mesh-tensor {tensor}: there are {len(devices)} devices: give 1 to {len(devices)}")
    with point("load_to_serve.mesh", devices, tensor):
        mesh = make_mesh(1, 1, tensor, devices[:tensor])
    config, model = open_hf_model(settings.hf) if settings.hf else load_checkpoint(settings.checkpoint_dir, None)
    config = dataclasses.replace(config, dtype=settings.dtype or config.dtype)
    laid_out = abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh)
    point("load_to_serve.start")

    def load(path: tuple[jax.tree_util.KeyEntry, ...], p: nnx.Param, later: nnx.Param) -> nnx.Param:
        name = jax.tree_util.keystr(path)
        is_matrix = len(p.axes) > 1 and "router" not in name
        point("load_to_serve.matrix", name, is_matrix)
        value = np.asarray(later.get_value())
        with point("load_to_serve.cast", settings, name, p, is_matrix):
            value = value.astype(config.dtype if is_matrix else p.dtype)
        point("load_to_serve.place", p, value)
        return p.replace(jax.device_put(value, p.get_value().sharding))

    def is_param(x: object) -> bool:
        return isinstance(x, nnx.Param)

    leaves = jax.tree.leaves(model, is_leaf=is_param)
    model = jax.tree.unflatten(jax.tree.structure(laid_out, is_leaf=is_param), leaves)
    model = jax.tree_util.tree_map_with_path(load, laid_out, model, is_leaf=is_param)
    point("load_to_serve.loaded", model, mesh)
    return config, model, mesh
