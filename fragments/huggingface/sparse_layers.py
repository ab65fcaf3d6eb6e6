"""Kinds of feed-forwards in config.json when some layers have experts."""

from generator.language import layers, splice


@splice("hf.structure")
def _(config):
    sparse = layers.numbers
    kinds = ["sparse" if layer in sparse else "dense" for layer in range(config.layers)]
    yield "mlp_layer_types", kinds, "experts in those layers"
