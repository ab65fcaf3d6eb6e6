"""OLMo Hybrid's checkpoints: norms that follow attention and precede a delta rule, and sizes left out."""

from generator.language import layers, proceed, splice


@splice("hf.view")
def _(layer, tensor, config):
    recurrent = layers.numbers
    # as transformers writes it; releases have post_attention_layernorm in layers with attention
    same = "post_feedforward_layernorm" if layer in recurrent else "post_attention_layernorm"
    tensor = tensor.replace(same, "feedforward_layer_norm")
    proceed()


@splice("hf.opened")
def _(tensors):
    tensors = {name.replace("post_attention_layernorm", "feedforward_layer_norm"): x for name, x in tensors.items()}


@splice("hf.complete")
def _(hf):
    hf.setdefault("linear_num_key_heads", hf["num_attention_heads"])
    hf.setdefault("linear_num_value_heads", hf["num_attention_heads"])
    hf.setdefault("linear_key_head_dim", int(0.75 * hf["hidden_size"] / hf["linear_num_key_heads"]))
    hf.setdefault("linear_value_head_dim", 2 * hf["linear_key_head_dim"])
