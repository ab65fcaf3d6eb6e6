"""Kinds of layers in config.json when all layers have attention with an indexer."""

from generator.language import requires, splice

requires("indexer")


@splice("hf.complete")
def _(hf):
    count = hf["num_hidden_layers"]
    dense = min(hf["first_k_dense_replace"], count)
    hf.setdefault("layer_types", ["indexed_attention"] * count)
    hf.setdefault("mlp_layer_types", ["dense"] * dense + ["sparse"] * (count - dense))


@splice("hf.structure")
def _(config):
    yield "layer_types", ["indexed_attention"] * config.layers, "layers of that pattern"
