"""The rotation of each type of layer in config.json: one base for all, and a scaling for full attention alone."""

from generator.language import requires, splice

requires("rope")


@splice("hf.rope")
def _(hf):
    ropes = hf.get("rope_parameters") or {}  # since transformers 5
    full = ropes.get("full_attention") or hf.get("rope_scaling") or {}
    hf["rope_theta"] = full.get("rope_theta", hf.get("rope_theta", 500_000.0))
    hf["rope_scaling"] = None if full.get("rope_type", "default") == "default" else full
    local = {"rope_type": "default", "rope_theta": 500_000.0} | (ropes.get("sliding_attention") or {})
    hf["rope_parameters.sliding_attention"] = local


@splice("hf.structure")
def _(config):
    local = {"rope_type": "default", "rope_theta": config.rope_theta}
    yield "rope_parameters.sliding_attention", local, "a window whose layers have a rope of their own"


@splice("hf.export", after="scaled_rope")
def _(hf):
    scaling = hf.pop("rope_scaling")
    full = scaling or {"rope_type": "default"}
    full["rope_theta"] = hf.pop("rope_theta")
    local = hf.pop("rope_parameters.sliding_attention")
    hf["rope_parameters"] = {"full_attention": full, "sliding_attention": local}
