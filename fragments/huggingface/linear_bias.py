"""Names of the biases of all linear maps in checkpoints."""

from generator.language import proceed, requires, splice

requires("linear_bias")


@splice("hf.query_key_value")
def _():
    proceed()
    yield "attention.query.bias", "model.layers.{}.self_attn.q_proj.bias", "n h -> (n h)"
    yield "attention.key.bias", "model.layers.{}.self_attn.k_proj.bias", "k h -> (k h)"
    yield "attention.value.bias", "model.layers.{}.self_attn.v_proj.bias", "k h -> (k h)"


@splice("hf.out")
def _():
    proceed()
    yield "attention.out.bias", "model.layers.{}.self_attn.o_proj.bias", "d -> d"


@splice("hf.gate_up", optional=True)
def _():
    proceed()
    yield "mlp.gate.bias", "model.layers.{}.mlp.gate_proj.bias", "f -> f"


@splice("hf.mlp")
def _():
    proceed()
    yield "mlp.up.bias", "model.layers.{}.mlp.up_proj.bias", "f -> f"
    yield "mlp.down.bias", "model.layers.{}.mlp.down_proj.bias", "d -> d"
