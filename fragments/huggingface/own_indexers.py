"""Indexers in config.json when each layer has one: none takes over what another has selected."""

from generator.language import requires, splice

requires("indexer")


@splice("hf.complete")
def _(hf):
    first = hf.pop("index_skip_topk_offset", 2) - 1
    every = max(hf.pop("index_topk_freq", 1), 1)  # layers from the first on, of which one has an indexer
    places = [max(layer - first, 0) for layer in range(hf["num_hidden_layers"])]
    hf.setdefault("indexer_types", ["shared" if place % every else "full" for place in places])
    hf.setdefault("indexer_rope_interleave", True)


@splice("hf.structure")
def _(config):
    yield "indexer_types", ["full"] * config.layers, "layers that share an indexer"
    yield "indexer_rope_interleave", True, "model/indexer_halves"
