"""Full attention in a model type that can have a sliding window."""

from generator.language import excludes, splice

excludes("sliding_window")


@splice("hf.complete")
def _(hf):
    if not hf.get("use_sliding_window", True):
        for name in "sliding_window", "max_window_layers":  # then unused
            hf.pop(name, None)


@splice("hf.structure")
def _():
    yield "sliding_window", None, "sliding windows (model/sliding_window)"
