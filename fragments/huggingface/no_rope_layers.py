"""The layers without rotation in config.json: the last of each period.

Source: Yang et al. 2025, arXiv 2501.18795, section 3.
"""

from generator.marks import setting, splice


def rotated_layers(layers: int, period: int) -> list[int]:
    """For each layer, whether it rotates its queries and keys: all but the last of each period."""
    return [int(number % period != 0) for number in range(1, layers + 1)]


@splice("hf.complete")
def _(hf):
    hf.setdefault("no_rope_layers", rotated_layers(hf["num_hidden_layers"], hf.get("no_rope_layer_interval", 4)))


@splice("hf.structure")
def _(config):
    yield "no_rope_layers", rotated_layers(config.layers, setting("period")), "layers of that pattern"
    yield "no_rope_layer_interval", setting("period"), "layers of that period"
