"""The rotated part of each head, which config.json gives as a number of dimensions or as a share."""

from generator.language import requires, splice

requires("partial_rope")


@splice("hf.complete", before="rope")
def _(hf):
    size = hf.pop("rotary_dim", hf["head_dim"])
    hf.setdefault("partial_rotary_factor", size / hf["head_dim"])
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    hf["partial_rotary_factor"] = rope.get("partial_rotary_factor", hf["partial_rotary_factor"])
