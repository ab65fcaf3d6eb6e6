"""Attention to all tokens, where the model type has a sliding window too."""

from generator.language import excludes, splice

excludes("sliding_window")


@splice("hf.complete")
def _(hf):
    if not hf.get("use_sliding_window", True):
        for name in "sliding_window", "max_window_layers":  # which then say nothing
            hf.pop(name, None)


@splice("hf.structure")
def _():
    yield "sliding_window", None, "model/sliding_window"
