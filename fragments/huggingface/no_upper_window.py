"""Full attention in a model type whose upper layers can have a sliding window."""

from generator.language import excludes, requires, splice

requires("full_layer_types")
excludes("sliding_window")


@splice("hf.complete", before="full_layer_types")
def _(hf):
    window = hf.pop("sliding_window", None)
    full = hf.pop("max_window_layers")
    if window is not None:
        numbers = range(hf["num_hidden_layers"])
        hf.setdefault("layer_types", ["full_attention" if n < full else "sliding_attention" for n in numbers])
