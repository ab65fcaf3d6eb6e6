"""One shared expert in config.json, as wide as the others; what it says for each layer is the same for all."""

from generator.language import requires, splice

requires("shared_expert")


@splice("hf.complete")
def _(hf):
    for name in "moe_topk", "moe_intermediate_size", "num_shared_expert":
        if isinstance(hf.get(name), list) and len(set(hf[name])) == 1:  # one for each layer
            hf[name] = hf[name][0]
    hf.setdefault("moe_intermediate_size", hf["intermediate_size"])


@splice("hf.shared_experts")
def _():
    pass


@splice("hf.sizes")
def _():
    yield "intermediate_size", "mlp_width"


@splice("hf.structure")
def _(config):
    yield "moe_intermediate_size", config.mlp_width, "a shared expert of another width than the others"
