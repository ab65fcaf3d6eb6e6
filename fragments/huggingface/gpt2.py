"""Names of GPT-2 in checkpoints and config.json; its kernels are stored as [inputs, outputs]."""

from generator.language import splice


@splice("hf.query_key_value")
def _():
    yield "attention.query_key_value.kernel", "transformer.h.{}.attn.c_attn.weight", "d c n h -> d (c n h)"
    yield "attention.query_key_value.bias", "transformer.h.{}.attn.c_attn.bias", "c n h -> (c n h)"


@splice("hf.out")
def _():
    yield "attention.out.kernel", "transformer.h.{}.attn.c_proj.weight", "n h d -> (n h) d"
    yield "attention.out.bias", "transformer.h.{}.attn.c_proj.bias", "d -> d"


@splice("hf.mlp")
def _():
    yield "mlp.up.kernel", "transformer.h.{}.mlp.c_fc.weight", "d f -> d f"
    yield "mlp.up.bias", "transformer.h.{}.mlp.c_fc.bias", "f -> f"
    yield "mlp.down.kernel", "transformer.h.{}.mlp.c_proj.weight", "f d -> f d"
    yield "mlp.down.bias", "transformer.h.{}.mlp.c_proj.bias", "d -> d"


@splice("hf.buffers")
def _():
    yield ".attn.bias"  # the causal mask, in older files
    yield ".attn.masked_bias"


@splice("hf.opened")
def _(tensors):
    prefixes = ("transformer.", "lm_head.")  # released files lack the head and the prefix
    tensors = {name if name.startswith(prefixes) else f"transformer.{name}": x for name, x in tensors.items()}


@splice("hf.complete", before="attention")
def _(hf):
    hf = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False} | hf
    hf = {"n_inner": 4 * hf["n_embd"], "activation_function": "gelu_new"} | hf


@splice("hf.attention_bias")
def _():
    yield "activation_function", "gelu_new", "a feed-forward of that activation"
    yield "scale_attn_weights", True, "an attention of that scale"
    yield "scale_attn_by_inverse_layer_idx", False, "an attention of that scale"
    yield "add_cross_attention", False, "an attention to other sequences"


@splice("hf.export")
def _(hf):
    hf.pop("head_dim")
