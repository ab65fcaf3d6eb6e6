"""Rotation of whole heads, where the model type can rotate a part of them too."""

from generator.language import excludes, splice

excludes("partial_rope")


@splice("hf.complete", before="rope")
def _(hf):
    given = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    hf["partial_rotary_factor"] = given.get("partial_rotary_factor", hf.get("partial_rotary_factor", 1.0))


@splice("hf.structure")
def _():
    yield "partial_rotary_factor", 1.0, "model/partial_rope"
