"""The layers with attention in config.json when others have a state space in its place, and the size of its heads."""

from generator.language import layers, splice


@splice("hf.complete")
def _(hf):
    if hf.get("mamba_d_head", "auto") == "auto":
        hf["mamba_d_head"] = hf["mamba_expand"] * hf["hidden_size"] // hf["mamba_n_heads"]
    hf["mamba_expand"] = hf["mamba_d_head"] * hf["mamba_n_heads"] // hf["hidden_size"]


@splice("hf.structure")
def _(config):
    yield "mamba_expand", config.mamba_heads * config.mamba_head_size // config.width, "a state space of that width"
    recurrent = layers.numbers
    attending = [layer for layer in range(config.layers) if layer not in recurrent]
    yield "attn_layer_indices", attending, "layers of that pattern"
