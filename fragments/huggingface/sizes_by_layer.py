"""Sizes of layers with full attention, for each of them as transformers 5.24 writes them, or once."""

from generator.language import requires, splice

requires("global_heads")


@splice("hf.complete", after="attention grouped_queries layer_types")
def _(hf):
    seeing_all = [layer for layer, kind in enumerate(hf["layer_types"]) if kind == "full_attention"]
    per_layer = {int(layer): sizes for layer, sizes in hf.get("per_layer_config", {}).items()}
    sizes = next(iter(per_layer.values()), {})
    is_read = sizes.keys() <= {"head_dim", "num_key_value_heads"} and per_layer == dict.fromkeys(seeing_all, sizes)
    if "per_layer_config" in hf and is_read:
        del hf["per_layer_config"]
        hf["global_head_dim"] = sizes.get("head_dim", hf["head_dim"])
        hf["num_global_key_value_heads"] = sizes.get("num_key_value_heads", hf["num_key_value_heads"])
    hf.setdefault("global_head_dim", 512)
    if not hf["attention_k_eq_v"]:  # then not read
        hf["num_global_key_value_heads"] = hf["num_key_value_heads"]
    hf.setdefault("num_global_key_value_heads", hf["num_key_value_heads"])


@splice("hf.structure")
def _():
    yield "per_layer_config", None, "layers with full attention of several sizes"


@splice("hf.export")
def _(hf):
    del hf["per_layer_config"]
