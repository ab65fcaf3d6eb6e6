"""Layer types in config.json when all layers have full attention."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    hf.setdefault("layer_types", ["full_attention"] * hf["num_hidden_layers"])


@splice("hf.structure")
def _(config):
    yield "layer_types", ["full_attention"] * config.layers, "layers of that pattern"
