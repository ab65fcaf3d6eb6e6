"""Layer types in config.json when some layers have a convolution in place of attention."""

from generator.language import layers, splice


@splice("hf.complete")
def _(hf):
    attending = hf.get("full_attn_idxs", range(hf["num_hidden_layers"]))  # in older files
    types = ["full_attention" if layer in attending else "conv" for layer in range(hf["num_hidden_layers"])]
    hf.setdefault("layer_types", types)


@splice("hf.structure")
def _(config):
    convolving = layers.numbers
    types = ["conv" if layer in convolving else "full_attention" for layer in range(config.layers)]
    yield "layer_types", types, "layers of that pattern"
