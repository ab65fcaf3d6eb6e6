"""Layer types in config.json: full attention in the lower layers, a sliding window in the upper ones.

Source: Yang et al. 2024, arXiv 2407.10671, section 2.2.1 (its models were released with the window off).
"""

from generator.language import requires, setting, splice

requires("sliding_window")


@splice("hf.complete")
def _(hf):
    hf.setdefault("use_sliding_window", False)
    numbers = range(hf["num_hidden_layers"])
    full = hf["max_window_layers"]
    hf.setdefault("layer_types", ["full_attention" if n < full else "sliding_attention" for n in numbers])


@splice("hf.structure")
def _():
    yield "use_sliding_window", True, "no sliding windows (model/no_window)"
    yield "max_window_layers", setting("full_layers"), "layers of that pattern"
