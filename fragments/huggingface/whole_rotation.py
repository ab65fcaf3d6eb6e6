"""Rotation of whole heads, where the model type can rotate a part of them too."""

from generator.language import excludes, splice

excludes("partial_rope")


@splice("hf.structure")
def _():
    yield "partial_rotary_factor", 1.0, "model/partial_rope"
