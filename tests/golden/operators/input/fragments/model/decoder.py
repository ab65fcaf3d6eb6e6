"""A decoder: one block for every layer."""

import functools

from generator.language import point
from generator.language.roles import Block, Config


class ModelConfig:
    """Sizes of the model."""

    width: int  # of the residual stream
    layers: int = 2  # number of blocks


class Decoder:
    """Tokens to numbers."""

    def __init__(self, config: Config):
        self.config = config
        self.block = Block(config)

    def __call__(self, tokens: list[float]) -> list[float]:
        x = [token * self.config.width for token in tokens]
        point("Decoder.embedded", x)

        def layer(x: list[float]) -> list[float]:
            return self.block(x)

        return functools.reduce(lambda x, _: layer(x), range(self.config.layers), x)
