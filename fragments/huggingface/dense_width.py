"""The width of dense layers in config.json, where it has another one for experts."""

from generator.language import requires, splice

requires("dense_layers")


@splice("hf.sizes")
def _():
    yield "intermediate_size", "mlp_width"
