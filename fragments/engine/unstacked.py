"""Layers of a served model apart: XLA's CPU backend copies a slice of a stack before it multiplies by it."""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import Decoder


def unstack(model: Decoder) -> Decoder:
    """The model with a tuple of arrays, one of each layer, in the place of each stacked parameter."""

    def apart(p):
        is_stack = p.ndim > len(p.axes) and len(p) > 0  # one of no layers stays as it is
        return p.replace(jnp.unstack(p[...])) if is_stack else p

    return jax.tree.map(apart, model, is_leaf=lambda x: isinstance(x, nnx.Param))


def stack(model: Decoder) -> Decoder:
    """The other way around, in a program. There a slice of a stack is the array that was stacked, and costs nothing."""

    def together(p):
        value = p.get_value()
        return p.replace(jnp.stack(value)) if isinstance(value, tuple) else p

    return jax.tree.map(together, model, is_leaf=lambda x: isinstance(x, nnx.Param))


@splice("Device.model")
def _(model):
    model = unstack(model)


@splice("run.model")
def _(model):
    model = stack(model)
