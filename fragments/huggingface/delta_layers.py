"""Layer types that config.json leaves out: attention in the last of each period, a delta rule in the others."""

from generator.language import setting, splice


@splice("hf.complete")
def _(hf):
    period = hf.get("full_attention_interval", setting("attention_period"))
    numbers = range(1, hf["num_hidden_layers"] + 1)
    hf.setdefault("layer_types", ["linear_attention" if n % period else "full_attention" for n in numbers])
