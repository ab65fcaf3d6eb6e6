"""Unstacked layers for serving, with kernels transposed: XLA's CPU backend copies a slice of a stack before a product,
and the right factor of a product in each step.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.sharding import Mesh

from generator.language import point, splice
from generator.language.roles import Decoder, Linear


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Transposed:
    """A kernel that is stored with a row for each output, as products of few rows are fastest with."""

    rows: Array  # [outputs, inputs]
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})  # of the kernel

    @property
    def dtype(self) -> np.dtype:
        return self.rows.dtype

    def astype(self, dtype: object) -> Array:
        """Returns the kernel: in a program without a copy, where it is multiplied."""
        return self.rows.T.reshape(self.shape).astype(dtype)


def transpose(p: nnx.Param, outputs: int) -> None:
    """Transposes a kernel, or that of each layer, in place. Its last `outputs` axes are those of what it computes."""

    def transpose_one(kernel):
        return Transposed(kernel.reshape(-1, math.prod(kernel.shape[-outputs:])).T, kernel.shape)

    value = p.get_value()
    if isinstance(value, tuple) and isinstance(value[0], jax.Array):
        p.set_value(tuple(transpose_one(layer) for layer in value))
    elif isinstance(value, jax.Array) and value.ndim == len(p.axes):  # else an empty stack
        p.set_value(transpose_one(value))


def transpose_kernels(model: Decoder) -> None:
    """Transposes the kernels of linear maps, and that of the output head, in place."""
    for _, module in nnx.iter_modules(model):
        if isinstance(module, Linear):
            transpose(module.kernel, len(module.equation.rpartition("->")[2]) - 2)  # without B and T
    point("transpose_kernels.head", model)


def unstack(model: Decoder, mesh: Mesh | None) -> None:
    """Replaces each stacked parameter by a tuple of arrays, one for each layer, in place: few are there twice."""
    for p in jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, nnx.Param)):
        value = p.get_value()
        leaves, structure = jax.tree.flatten(value)
        # neither unstacked before, nor of no layer, nor an empty stack
        if not isinstance(value, tuple) and leaves[0].ndim > len(p.axes) and len(leaves[0]):
            stacks = zip(*map(jnp.unstack, leaves), strict=True)
            p.set_value(tuple(jax.tree.unflatten(structure, layer) for layer in stacks))
    if mesh is None or mesh.size == 1:  # merged with others, an axis that a mesh shards could lose its sharding
        transpose_kernels(model)


def stack(model: Decoder) -> Decoder:
    """Undoes `unstack` inside a program, where XLA replaces a slice of a stack by the array that was stacked."""

    def stack_layers(p):
        value = p.get_value()
        if isinstance(value, Transposed):
            value = value.astype(value.dtype)
        elif isinstance(value, tuple):
            value = jnp.stack([layer.astype(layer.dtype) for layer in value])
        return p.replace(value)

    return jax.tree.map(stack_layers, model, is_leaf=lambda x: isinstance(x, nnx.Param))


@splice("load_to_serve.loaded")
def _(model, mesh):
    unstack(model, mesh)


@splice("Device.model")
def _(model, mesh):
    model = jax.tree.map(lambda x: x, model)  # its owner's stays stacked
    unstack(model, mesh)


@splice("replace_weights.model")
def _(engine, model):
    model = jax.tree.map(lambda x: x, model)  # its owner's stays stacked
    unstack(model, engine.device.mesh)


@splice("run.model")
def _(model):
    model = stack(model)
