"""Attention to all tokens, where the model type has a sliding window too."""

from generator.marks import excludes, setting, splice

excludes("sliding_window")


@splice("hf.complete")
def _(hf):
    if not hf.get("use_sliding_window", setting("window_unless_said")):
        hf["sliding_window"] = None
    hf.setdefault("sliding_window", None)


@splice("hf.structure")
def _():
    yield "sliding_window", None, "model/sliding_window"
