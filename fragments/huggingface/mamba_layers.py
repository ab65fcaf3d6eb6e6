"""The layers with attention in config.json when others have a state space in its place."""

from generator.language import layers, splice


@splice("hf.structure")
def _(config):
    recurrent = layers.numbers
    attending = [layer for layer in range(config.layers) if layer not in recurrent]
    yield "attn_layer_indices", attending, "layers of that pattern"
