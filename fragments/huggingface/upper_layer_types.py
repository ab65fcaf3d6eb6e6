"""The types of the layers in config.json: the lower ones attend in full, the upper ones through a window."""

from generator.marks import requires, splice

requires("upper_window")


def layer_types(full: int, layers: int) -> list[str]:
    """The type of each layer."""
    return ["full_attention" if number < full else "sliding_attention" for number in range(layers)]


@splice("hf.complete")
def _(hf):
    hf.setdefault("layer_types", layer_types(hf["max_window_layers"], hf["num_hidden_layers"]))


@splice("hf.structure")
def _(config):
    yield "layer_types", layer_types(config.full_layers, config.layers), "layers of that pattern"
