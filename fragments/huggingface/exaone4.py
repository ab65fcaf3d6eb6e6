"""EXAONE's layer pattern in config.json: a number or letters, beside the complete list layer_types."""

from generator.language import setting, splice


@splice("hf.complete", before="layer_types")
def _(hf):
    if "layer_types" in hf:
        hf.pop("sliding_window_pattern", None)


@splice("hf.export")
def _(hf):
    hf["sliding_window_pattern"] = setting("window_period")
