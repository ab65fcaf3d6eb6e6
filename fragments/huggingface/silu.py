"""The activation of experts in config.json, where no layer has a dense feed-forward that says it."""

from generator.language import excludes, splice

excludes("swiglu")


@splice("hf.structure")
def _():
    yield "hidden_act", "silu", "experts of that activation"
