"""Attention to all tokens, where the model type has a sliding window too."""

from generator.marks import excludes, splice

excludes("sliding_window")


@splice("hf.complete")
def _(hf):
    hf["sliding_window"] = hf.get("sliding_window") if hf.get("use_sliding_window", True) else None


@splice("hf.structure")
def _():
    yield "sliding_window", None, "model/sliding_window"
