"""Layers of a served model apart: XLA's CPU backend copies a slice of a stack before it multiplies by it."""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import Decoder


def unstack(model: Decoder) -> Decoder:
    """The model with a tuple of arrays, one of each layer, in the place of each stacked parameter."""

    def unstacked(p):
        leaves, structure = jax.tree.flatten(p.get_value())
        stacks = zip(*map(jnp.unstack, leaves), strict=True) if leaves[0].ndim > len(p.axes) else ()
        layers = tuple(jax.tree.unflatten(structure, layer) for layer in stacks)
        return p.replace(layers) if layers else p  # a stack of no layers stays one

    return jax.tree.map(unstacked, model, is_leaf=lambda x: isinstance(x, nnx.Param))


def stack(model: Decoder) -> Decoder:
    """The other way around, in a program. There a slice of a stack is the array that was stacked, and costs nothing."""

    def together(p):
        value = p.get_value()
        return p.replace(jnp.stack([layer.astype(layer.dtype) for layer in value])) if isinstance(value, tuple) else p

    return jax.tree.map(together, model, is_leaf=lambda x: isinstance(x, nnx.Param))


@splice("Device.model")
def _(model):
    model = unstack(model)


@splice("run.model")
def _(model):
    model = stack(model)
