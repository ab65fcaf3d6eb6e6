"""Layers that repeat with a period, written out: a scan goes over the periods."""

from flax import nnx
from jax import Array

from generator.language import each_layer
from generator.language.roles import Block, Config


class Period(nnx.Module):
    """The layers that repeat, one after the other."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        with each_layer():
            self.layer = Block(config, rngs)

    def __call__(self, x: Array) -> Array:
        with each_layer():
            x = self.layer(x)
        return x
