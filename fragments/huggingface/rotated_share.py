"""The share of each head that is rotated: 1 if config.json leaves it out."""

from generator.language import requires, splice

requires("partial_rope or whole_rotation")


@splice("hf.complete", before="rope")
def _(hf):
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    hf["partial_rotary_factor"] = rope.get("partial_rotary_factor", hf.get("partial_rotary_factor", 1.0))
