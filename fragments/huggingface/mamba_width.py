"""The size of the heads of a state space, and the width of them all, in config.json."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    if hf.get("mamba_d_head", "auto") == "auto":
        hf["mamba_d_head"] = hf["mamba_expand"] * hf["hidden_size"] // hf["mamba_n_heads"]
    hf["mamba_expand"] = hf["mamba_d_head"] * hf["mamba_n_heads"] // hf["hidden_size"]


@splice("hf.structure")
def _(config):
    yield "mamba_expand", config.mamba_heads * config.mamba_head_size // config.width, "a state space of that width"
