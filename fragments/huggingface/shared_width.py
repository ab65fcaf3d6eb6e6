"""The width of the shared experts in config.json, in place of their number, as a multiple of that of one expert."""

from generator.language import requires, splice

requires("shared_expert")


@splice("hf.complete")
def _(hf):
    hf["n_shared_experts"] = hf["shared_expert_intermediate_size"] // hf["moe_intermediate_size"]


@splice("hf.structure")
def _(config):
    width = config.shared_experts * config.expert_width
    yield "shared_expert_intermediate_size", width, "shared experts whose width is no multiple of an expert's"


@splice("hf.sizes")
def _():
    yield "intermediate_size", "mlp_width"  # of dense layers, present even if there are none


@splice("hf.export")
def _(hf):
    hf.pop("n_shared_experts")
