"""Unstacked layers for serving: XLA's CPU backend copies a slice of a stack before a product."""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import Decoder


def unstack(model: Decoder) -> None:
    """Replaces each stacked parameter by a tuple of arrays, one for each layer, in place: few are there twice."""
    for p in jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, nnx.Param)):
        value = p.get_value()
        leaves, structure = jax.tree.flatten(value)
        # neither unstacked before, nor of no layer, nor an empty stack
        if not isinstance(value, tuple) and leaves[0].ndim > len(p.axes) and len(leaves[0]):
            stacks = zip(*map(jnp.unstack, leaves), strict=True)
            p.set_value(tuple(jax.tree.unflatten(structure, layer) for layer in stacks))


def stack(model: Decoder) -> Decoder:
    """Undoes `unstack` inside a program, where XLA replaces a slice of a stack by the array that was stacked."""

    def stack_layers(p):
        value = p.get_value()
        return p.replace(jnp.stack([layer.astype(layer.dtype) for layer in value])) if isinstance(value, tuple) else p

    return jax.tree.map(stack_layers, model, is_leaf=lambda x: isinstance(x, nnx.Param))


@splice("load_to_serve.loaded")
def _(model):
    unstack(model)


@splice("Device.model", "replace_weights.model")
def _(model):
    model = jax.tree.map(lambda x: x, model)  # its owner's stays stacked
    unstack(model)


@splice("run.model")
def _(model):
    model = stack(model)
