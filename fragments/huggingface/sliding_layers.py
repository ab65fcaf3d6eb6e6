"""Layer types in config.json when some layers have a sliding window."""

from generator.language import layers, splice


@splice("hf.structure")
def _(config):
    sliding = layers.numbers
    types = ["sliding_attention" if layer in sliding else "full_attention" for layer in range(config.layers)]
    yield "layer_types", types, "layers of that pattern"
