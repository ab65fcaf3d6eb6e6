"""The types of layers in config.json, where all attend in full although there is a window."""

from generator.language import excludes, splice

excludes("sliding_layers")


@splice("hf.structure")
def _(config):
    yield "layer_types", ["full_attention"] * config.layers, "layers of that pattern"
