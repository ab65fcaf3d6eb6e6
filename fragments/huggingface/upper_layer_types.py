"""Layers in config.json of which the lower ones attend in full, the upper ones through a window.

Source: Yang et al. 2024, arXiv 2407.10671, section 2.2.1 (its models were released with the window off).
"""

from generator.language import requires, setting, splice

requires("sliding_window")


def layer_types(full: int, layers: int) -> list[str]:
    """The type of each layer."""
    return ["full_attention" if number < full else "sliding_attention" for number in range(layers)]


@splice("hf.complete")
def _(hf):
    hf.setdefault("use_sliding_window", False)
    hf.setdefault("layer_types", layer_types(hf["max_window_layers"], hf["num_hidden_layers"]))


@splice("hf.structure")
def _(config):
    full = setting("full_layers")
    yield "use_sliding_window", True, "model/no_window"
    yield "max_window_layers", full, "layers of that pattern"
    yield "layer_types", layer_types(full, config.layers), "layers of that pattern"
