"""Attention to all tokens, where the model type has a sliding window too."""

from generator.marks import excludes, splice

excludes("sliding_window")


@splice("hf.complete")
def _(hf):
    hf.setdefault("sliding_window", None)


@splice("hf.structure")
def _():
    yield "sliding_window", None, "model/sliding_window"
