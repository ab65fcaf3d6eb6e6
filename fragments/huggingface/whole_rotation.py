"""Rotation of whole heads, in a model type that can also rotate a part of them."""

from generator.language import excludes, splice

excludes("partial_rope")


@splice("hf.structure")
def _():
    yield "partial_rotary_factor", 1.0, "a rotated part of each head (model/partial_rope)"
