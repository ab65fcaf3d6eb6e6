"""The norm of attention that is the one sublayer of a block."""

from generator.language import requires, splice

requires("single_block")


@splice("hf.layer_tensors")
def _():
    yield "attention_norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
