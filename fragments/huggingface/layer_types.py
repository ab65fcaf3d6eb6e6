"""The types of layers that config.json leaves out: the last of each period attends in full, the others to a window."""

from generator.language import setting, splice


@splice("hf.complete")
def _(hf):
    period = hf.get("sliding_window_pattern", setting("window_period"))  # before layer_types
    numbers = range(1, hf["num_hidden_layers"] + 1)
    hf.setdefault("layer_types", ["sliding_attention" if n % period else "full_attention" for n in numbers])
