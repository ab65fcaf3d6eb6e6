"""Dense layers in a model with shared experts, whose feed-forward has another width."""

from generator.language import layers, requires, splice

requires("shared_expert")


@splice("flops", before="experts mtp")
def _(parameters, config):
    parameters += layers.count * 3 * config.width * config.mlp_width


@splice("hf.layer_tensors")
def _():
    yield "mlp.gate.kernel", "model.layers.{}.mlp.gate_proj.weight", "d f -> f d"
    yield "mlp.up.kernel", "model.layers.{}.mlp.up_proj.weight", "d f -> f d"
    yield "mlp.down.kernel", "model.layers.{}.mlp.down_proj.weight", "f d -> d f"
