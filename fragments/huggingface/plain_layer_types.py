"""Layer types that config.json leaves out: windows in the layers without rotation.

Source: Yang et al. 2025, arXiv 2501.18795, section 3.
"""

from generator.language import requires, splice

requires("sliding_window")


@splice("hf.complete", after="no_rope_layers")
def _(hf):
    types = ["full_attention" if is_rotated else "sliding_attention" for is_rotated in hf["no_rope_layers"]]
    hf.setdefault("layer_types", types)


@splice("hf.structure")
def _():
    yield "use_sliding_window", True, "no sliding windows (model/no_window)"
