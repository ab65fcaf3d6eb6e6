"""Query, key and value in one tensor of a checkpoint, gate and up in another."""

from generator.language import requires, splice

requires("joined")


@splice("hf.query_key_value")
def _():
    yield "attention.query.kernel", "model.layers.{}.self_attn.qkv_proj.weight", "d n h -> (n h) d"
    yield "attention.key.kernel", "model.layers.{}.self_attn.qkv_proj.weight", "d k h -> (k h) d"
    yield "attention.value.kernel", "model.layers.{}.self_attn.qkv_proj.weight", "d k h -> (k h) d"


@splice("hf.gate_up")
def _():
    yield "mlp.gate.kernel", "model.layers.{}.mlp.gate_up_proj.weight", "d f -> f d"
    yield "mlp.up.kernel", "model.layers.{}.mlp.gate_up_proj.weight", "d f -> f d"
