"""Llama 4's layers with experts, in config.json."""

from generator.language import layers, splice


@splice("hf.complete")
def _(hf):
    step = hf.get("interleave_moe_layer_step", 1)
    hf.setdefault("moe_layers", list(range(step - 1, hf["num_hidden_layers"], step)))


@splice("hf.shared_experts")
def _():
    pass


@splice("hf.structure")
def _(config):
    yield "moe_layers", list(layers.numbers), "experts in layers of that pattern"


@splice("hf.export")
def _(hf):
    hf["interleave_moe_layer_step"] = hf["moe_layers"][0] + 1  # for readers that do not know the list
