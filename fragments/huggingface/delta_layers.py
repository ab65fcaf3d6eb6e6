"""Layer types in config.json when some layers have a delta rule in place of attention."""

from generator.language import layers, setting, splice


@splice("hf.complete")
def _(hf):
    period = hf.get("full_attention_interval", setting("attention_period"))
    numbers = range(1, hf["num_hidden_layers"] + 1)
    hf.setdefault("layer_types", ["linear_attention" if n % period else "full_attention" for n in numbers])


@splice("hf.structure")
def _(config):
    recurrent = layers.numbers
    types = ["linear_attention" if layer in recurrent else "full_attention" for layer in range(config.layers)]
    yield "layer_types", types, "layers of that pattern"
