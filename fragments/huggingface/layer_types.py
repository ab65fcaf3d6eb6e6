"""The types of the layers in config.json: the last of each period attends in full, the others through a window."""

from generator.language import setting, splice


def layer_types(layers: int, period: int = setting("period")) -> list[str]:
    """The type of each layer, by the pattern that was woven or another one."""
    return ["sliding_attention" if number % period else "full_attention" for number in range(1, layers + 1)]


@splice("hf.complete")
def _(hf):
    period = hf.get("sliding_window_pattern", setting("period"))  # before layer_types
    hf.setdefault("layer_types", layer_types(hf["num_hidden_layers"], period))


@splice("hf.structure")
def _(config):
    yield "layer_types", layer_types(config.layers), "layers of that pattern"
