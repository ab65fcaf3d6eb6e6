"""Layer types that config.json leaves out: full attention in the last of each period, windows in the others."""

from generator.language import setting, splice


@splice("hf.complete")
def _(hf):
    period = hf.get("sliding_window_pattern", setting("window_period"))  # in older files
    numbers = range(1, hf["num_hidden_layers"] + 1)
    hf.setdefault("layer_types", ["sliding_attention" if n % period else "full_attention" for n in numbers])
