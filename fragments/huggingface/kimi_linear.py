"""Kimi Linear's checkpoints: settings of the delta rule in a table of their own, and two names of dense layers."""

from generator.language import splice


@splice("hf.complete", before="latent_attention recurrent_layers sparse_layers")
def _(hf):
    delta = hf.pop("linear_attn_config", {})  # as released
    names = {"num_heads": "linear_num_heads", "head_dim": "linear_head_dim"}
    names["short_conv_kernel_size"] = "linear_conv_kernel_dim"
    hf |= {ours: delta[theirs] for theirs, ours in names.items() if theirs in delta}
    numbers = range(1, hf["num_hidden_layers"] + 1)
    attending = delta.get("full_attn_layers", [n for n in numbers if n > 1 and n % 4 == 1])
    types = ["full_attention" if n in attending else "linear_attention" for n in numbers]
    hf.setdefault("layer_types", types)
    dense = hf.pop("first_k_dense_replace", 1)
    hf.setdefault("mlp_layer_types", ["dense" if n <= dense else "sparse" for n in numbers])


@splice("hf.opened")
def _(tensors):
    # transformers gives experts and dense layers one prefix, releases give dense layers another
    tensors = {name.replace(".mlp.", ".block_sparse_moe."): x for name, x in tensors.items()}
