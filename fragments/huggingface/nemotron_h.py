"""Nemotron-H's list of layers in config.json, and the string that older files have in its place."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    names = {"M": "linear_attention", "-": "mlp", "*": "full_attention", "E": "moe"}
    names |= {"mamba": "linear_attention", "attention": "full_attention"}
    types = [names.get(kind, kind) for kind in hf.get("layers_block_type", hf.get("hybrid_override_pattern", ""))]
    hf["layers_block_type"] = types
    hf["num_hidden_layers"] = len(types)
    hf.pop("hybrid_override_pattern", None)
    hf["recurrent_layers"] = [layer for layer, kind in enumerate(types) if kind == "linear_attention"]
    hf["mlp_layers"] = [layer for layer, kind in enumerate(types) if kind == "mlp"]


@splice("hf.export")
def _(hf):
    types = ["full_attention"] * hf["num_hidden_layers"]
    for number in hf.pop("recurrent_layers"):
        types[number] = "linear_attention"
    for number in hf.pop("mlp_layers"):
        types[number] = "mlp"
    hf["layers_block_type"] = types


@splice("read_adapter_tensors.names", optional=True)
def _(tensors):
    # peft names modules as transformers has them: `model`, where files of models have `backbone`
    start, start_in_files = "base_model.model.model.", "base_model.model.backbone."
    tensors = {name.replace(start, start_in_files, 1): tensor for name, tensor in tensors.items()}
