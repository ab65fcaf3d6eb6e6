"""Names and defaults of gpt-oss in checkpoints and config.json."""

from generator.language import splice


@splice("hf.layer_tensors")
def _():
    yield "attention.query.bias", "model.layers.{}.self_attn.q_proj.bias", "n h -> (n h)"
    yield "attention.key.bias", "model.layers.{}.self_attn.k_proj.bias", "k h -> (k h)"
    yield "attention.value.bias", "model.layers.{}.self_attn.v_proj.bias", "k h -> (k h)"
    yield "attention.out.bias", "model.layers.{}.self_attn.o_proj.bias", "d -> d"
    yield "mlp.router.bias", "model.layers.{}.mlp.router.bias", "e -> e"


@splice("hf.complete", before="attention grouped_queries rope")
def _(hf):
    yarn = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
    hf = {"attention_bias": True, "head_dim": 64, "num_key_value_heads": 8, "rope_theta": 150_000.0} | hf
    hf = {"rope_parameters": yarn, "swiglu_alpha": 1.702, "swiglu_limit": 7.0} | hf
    for name in "experts_per_token", "initial_context_length":  # which repeat other settings
        hf.pop(name, None)


@splice("hf.attention_bias")
def _():
    yield "attention_bias", True, "an attention without biases"
