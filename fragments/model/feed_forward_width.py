"""Feed-forwards of several widths in one model."""

from generator.language import provide, requires, splice

requires("swiglu")


@splice("FeedForward.sizes")
def _(D, F, std, config, width):
    D, F = config.width, width
    std = config.init_std


@provide("Block.__init__")
def width(config) -> int:
    return config.mlp_width
