"""Layers that repeat with a period, written out: a scan goes over the periods."""

from flax import nnx
from jax import Array

from generator.language import layers
from generator.language.roles import Config


class Period(nnx.Module):
    """The layers that repeat, one after the other."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        for layer in layers.period:
            layer.module = layer.Block(config, rngs)

    def __call__(self, x: Array) -> Array:
        for layer in layers.period:
            x = layer.module(x)
        return x
