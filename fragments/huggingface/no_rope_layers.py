"""Layers without rotation in config.json: those that it lists, or else one per interval.

Source: Yang et al. 2025, arXiv 2501.18795, section 3.
"""

from generator.language import layers, setting, splice


def rotated_layers(layers: int, interval: int) -> list[int]:
    """Returns for each layer whether it rotates queries and keys: all except one per interval."""
    return [int(number % interval != 0) for number in range(1, layers + 1)]


@splice("hf.complete")
def _(hf):
    hf.setdefault("no_rope_layer_interval", 4)
    hf.setdefault("no_rope_layers", rotated_layers(hf["num_hidden_layers"], hf["no_rope_layer_interval"]))


@splice("hf.structure")
def _(config):
    rotated = layers.numbers
    yield "no_rope_layers", [int(layer in rotated) for layer in range(config.layers)], "layers of that pattern"
    yield "no_rope_layer_interval", setting("no_rope_interval"), "that interval (no_rope_interval)"
