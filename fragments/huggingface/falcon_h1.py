"""The width of a state space in config.json, beside an attention of another one."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    width = hf.get("mamba_d_ssm", hf["mamba_expand"] * hf["hidden_size"])
    if hf.get("mamba_d_head", "auto") == "auto":
        hf["mamba_d_head"] = width // hf["mamba_n_heads"]
    hf["mamba_d_ssm"] = width


@splice("hf.structure")
def _(config):
    yield "mamba_d_ssm", config.mamba_heads * config.mamba_head_size, "a state space of that width"
