"""Jamba's experts in config.json: once in each period, as wide as the other layers."""

from generator.language import setting, splice


@splice("check_config.together")
def _(config, problems):
    if config.expert_width != config.mlp_width:
        problems.append(f"--expert-width {config.expert_width}: must be --mlp-width, {config.mlp_width}")


@splice("hf.complete")
def _(hf):
    hf["moe_intermediate_size"] = hf["intermediate_size"]


@splice("hf.export")
def _(hf):
    hf.pop("moe_intermediate_size")


@splice("hf.structure")
def _():
    yield "expert_layer_period", setting("expert_period"), "layers of that pattern"
    yield "expert_layer_offset", setting("expert_offset"), "layers of that pattern"
