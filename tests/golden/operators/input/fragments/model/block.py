"""A residual block.

Source: He et al. 2016, arXiv 1512.03385.
"""

from generator.language import point
from generator.language.roles import attend


class Block:
    def __init__(self, config: Config):
        self.scale = 1.0 / config.width

    def __call__(self, x: list[float]) -> list[float]:
        h = [value * self.scale for value in x]
        point("Block.scaled", h, scale=self.scale)
        with point("Block.attend", h):
            h = attend(h)  # [T]
        return [a + b for a, b in zip(x, h)]
