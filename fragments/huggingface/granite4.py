"""Granite 4's settings: names in older files, and whether there are experts."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    names = {"mamba": "linear_attention", "attention": "full_attention"}  # in older files
    types = hf.get("layer_types", ["linear_attention"] * hf["num_hidden_layers"])
    hf["layer_types"] = [names.get(kind, kind) for kind in types]
    if hf.get("position_embedding_type") == "nope":
        hf.pop("position_embedding_type")
    hf["has_experts"] = hf["num_local_experts"] > 0


@splice("hf.export")
def _(hf):
    hf.pop("has_experts")
