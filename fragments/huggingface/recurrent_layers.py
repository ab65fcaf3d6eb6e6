"""Layer types in config.json when some layers have a recurrent state in place of attention."""

from generator.language import layers, splice


@splice("hf.structure")
def _(config):
    recurrent = layers.numbers
    types = ["linear_attention" if layer in recurrent else "full_attention" for layer in range(config.layers)]
    yield "layer_types", types, "layers of that pattern"
