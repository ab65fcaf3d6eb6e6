"""Weights for serving: sharded over devices, in the dtype of the computation or in int8.

Source: Dettmers et al. 2022, arXiv 2208.07339, section 2.1 (int8 with a scale for each vector).
"""

import dataclasses
import sys

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax.sharding import Mesh

from generator.language.roles import (
    Config,
    Decoder,
    InputError,
    abstract,
    load_checkpoint,
    make_mesh,
    open_hf_model,
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Int8:
    """A kernel in int8, which stands in for an array."""

    numbers: Array  # int8, in the shape of the kernel
    scale: Array  # fp32, 1 along the width of the residual stream

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def dtype(self) -> np.dtype:
        return self.scale.dtype

    def astype(self, dtype: str) -> Array:
        """Returns the dequantized kernel; XLA fuses this into the product."""
        return (self.numbers * self.scale).astype(dtype)


def in_int8(kernel: np.ndarray, axis: int) -> Int8:
    """Quantizes a kernel symmetrically: the largest absolute value along the axis becomes 127."""
    scale = np.maximum(np.abs(kernel).max(axis, keepdims=True), 1e-30) / 127
    return Int8(np.rint(kernel / scale).astype(np.int8), scale)


def load_to_serve(
    checkpoint_dir: str, hf: str, dtype: str | None, tensor: int, int8: bool
) -> tuple[Config, Decoder, Mesh]:
    """Loads the model of whichever directory is given, tensor by tensor, sharded over `tensor` devices.

    Casts matrices to `dtype` (None: that of training); with int8, quantizes the kernels of layers. Vectors and routers,
    which are used in fp32, stay as they are.
    """
    if bool(hf) == bool(checkpoint_dir):
        raise InputError("give either --checkpoint-dir or --hf")
    devices = jax.devices()
    if not 1 <= tensor <= len(devices):
        raise InputError(f"--mesh-tensor {tensor}: there are {len(devices)} devices: give 1 to {len(devices)}")
    mesh = make_mesh(1, 1, tensor, devices[:tensor])
    config, model = open_hf_model(hf) if hf else load_checkpoint(checkpoint_dir, None)
    config = dataclasses.replace(config, dtype=dtype or config.dtype)
    laid_out = abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh)

    errors = []  # relative errors of int8 kernels

    def load(path: tuple[jax.tree_util.KeyEntry, ...], p: nnx.Param, later: nnx.Param) -> nnx.Param:
        name = jax.tree_util.keystr(path)
        is_matrix = len(p.axes) > 1 and "router" not in name
        value = np.asarray(later.get_value())
        if int8 and is_matrix and "kernel" in name:
            width = next(i for i, axis in enumerate(p.axes) if axis and "embed" in axis) - len(p.axes)
            kernel = value.astype(np.float32)
            value = in_int8(kernel, width)
            errors.append(np.linalg.norm(value.astype(np.float32) - kernel) / np.linalg.norm(kernel))
        else:
            value = value.astype(config.dtype if is_matrix else p.dtype)
        return p.replace(jax.device_put(value, p.get_value().sharding))

    def is_param(x: object) -> bool:
        return isinstance(x, nnx.Param)

    leaves = jax.tree.leaves(model, is_leaf=is_param)
    model = jax.tree.unflatten(jax.tree.structure(laid_out, is_leaf=is_param), leaves)
    model = jax.tree_util.tree_map_with_path(load, laid_out, model, is_leaf=is_param)
    if errors:
        print(f"int8 kernels: relative root-mean-square error {np.mean(errors):.2%}", file=sys.stderr)
    return config, model, mesh
