"""RecurrentGemma's settings: kinds of blocks that repeat, and twice the width of a feed-forward."""

from generator.language import layers, splice


@splice("hf.complete")
def _(hf):
    types = hf["block_types"]
    hf["block_types"] = [types[layer % len(types)] for layer in range(hf["num_hidden_layers"])]
    hf["intermediate_size"] //= 2
    hf.setdefault("lru_width", hf["hidden_size"])


@splice("hf.export")
def _(hf):
    hf["intermediate_size"] *= 2


@splice("hf.structure")
def _(config):
    recurrent = layers.numbers
    types = ["recurrent" if layer in recurrent else "attention" for layer in range(config.layers)]
    yield "block_types", types, "layers of that pattern"
