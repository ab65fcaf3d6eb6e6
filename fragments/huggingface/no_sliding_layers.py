"""Layer types in config.json when all layers have full attention despite a window."""

from generator.language import excludes, splice

excludes("sliding_layers")


@splice("hf.structure")
def _(config):
    yield "layer_types", ["full_attention"] * config.layers, "layers of that pattern"
