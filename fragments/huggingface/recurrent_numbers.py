"""Numbers of the layers that have a recurrent state, where others have one sublayer of another kind."""

from generator.language import layers, splice


@splice("hf.structure")
def _(config):
    yield "recurrent_layers", list(layers.numbers), "layers of that pattern"
