"""A period of different layers, over which the model scans."""

from flax import nnx
from jax import Array

from generator.language import layers
from generator.language.roles import ModelConfig


class Period(nnx.Module):
    """Applies the layers of one period in turn."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        for layer in layers.period:
            layer.module = layer.Block(config, rngs)

    def __call__(self, x: Array) -> Array:
        for layer in layers.period:
            x = layer.module(x)
        return x
