"""Unstacked layers for serving: XLA's CPU backend copies a slice of a stack before a product."""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import Decoder


def unstack(model: Decoder) -> Decoder:
    """Replaces each stacked parameter by a tuple of arrays, one for each layer."""

    def unstacked(p):
        leaves, structure = jax.tree.flatten(p.get_value())
        stacks = zip(*map(jnp.unstack, leaves), strict=True) if leaves[0].ndim > len(p.axes) else ()
        layers = tuple(jax.tree.unflatten(structure, layer) for layer in stacks)
        return p.replace(layers) if layers else p  # an empty stack stays as it is

    return jax.tree.map(unstacked, model, is_leaf=lambda x: isinstance(x, nnx.Param))


def stack(model: Decoder) -> Decoder:
    """Undoes `unstack` inside a program, where XLA replaces a slice of a stack by the array that was stacked."""

    def stack_layers(p):
        value = p.get_value()
        return p.replace(jnp.stack([layer.astype(layer.dtype) for layer in value])) if isinstance(value, tuple) else p

    return jax.tree.map(stack_layers, model, is_leaf=lambda x: isinstance(x, nnx.Param))


@splice("Device.model", "replace_weights.model", optional=True)
def _(model):
    model = unstack(model)


@splice("run.model")
def _(model):
    model = stack(model)
