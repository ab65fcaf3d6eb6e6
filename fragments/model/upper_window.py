"""A sliding window in the upper layers only.

Source: Yang et al. 2024, arXiv 2407.10671, section 2.2.1 (its models were released with the window off).
"""

from generator.marks import requires, splice

requires("sliding_window")


class Config:
    full_layers: int  # lower layers, which see everything; the others see through the window


def layer_types(full: int, layers: int) -> list[str]:
    """The type of each layer: the lower ones see everything."""
    return ["full_attention" if number < full else "sliding_attention" for number in range(layers)]


@splice("hf.sizes")
def _():
    yield "max_window_layers", "full_layers"


@splice("hf.complete")
def _(hf):
    hf.setdefault("use_sliding_window", False)
    hf.setdefault("layer_types", layer_types(hf["max_window_layers"], hf["num_hidden_layers"]))


@splice("hf.structure")
def _(config):
    yield "use_sliding_window", True, "model/no_window"
    yield "layer_types", layer_types(config.full_layers, config.layers), "layers of that pattern"
