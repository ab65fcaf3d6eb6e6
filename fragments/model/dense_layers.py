"""Layers without experts in a model whose other layers have a shared expert: both are feed-forwards, of two widths."""

from generator.language import layers, requires, setting, splice

requires("shared_expert")


@splice("flops")
def _(products, config):
    products["mlp"] = layers.count * 3 * config.width * config.mlp_width


@splice("hf.layer_tensors")
def _():
    yield "mlp.gate.kernel", setting("hf_dense_gate"), "d f -> f d"
    yield "mlp.up.kernel", setting("hf_dense_up"), "d f -> f d"
    yield "mlp.down.kernel", setting("hf_dense_down"), "f d -> d f"
