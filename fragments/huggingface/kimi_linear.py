"""Kimi Linear's checkpoints: settings of the delta rule in a table of their own, and two names of dense layers."""

from generator.language import splice

# other names that transformers takes for settings
ALIASES = {
    "max_position_embeddings": "model_max_length",
    "n_group": "num_expert_group",
    "n_shared_experts": "num_shared_experts",
    "norm_topk_prob": "moe_renormalize",
    "num_experts_per_tok": "num_experts_per_token",
    "num_local_experts": "num_experts",
}


@splice("hf.complete", before="latent_attention")
def _(hf):
    hf = {ALIASES.get(name, name): x for name, x in hf.items()}
    if hf.get("tie_word_embeddings"):
        raise ValueError("the head of transformers' model is never that of the embedding")
    hf.pop("head_dim", None)  # of releases, which no layer has
    released = hf.pop("linear_attn_config", {})
    hf["linear_num_heads"] = released.get("num_heads", hf["linear_num_heads"])
    hf["linear_head_dim"] = released.get("head_dim", hf["linear_head_dim"])
    hf["linear_conv_kernel_dim"] = released.get("short_conv_kernel_size", hf["linear_conv_kernel_dim"])
    numbers = range(1, hf["num_hidden_layers"] + 1)
    kinds = {n: "full_attention" if n > 1 and n % 4 == 1 else "linear_attention" for n in numbers}
    if "full_attn_layers" in released and "kda_layers" in released:
        kinds = dict.fromkeys(released["full_attn_layers"], "full_attention")
        kinds |= dict.fromkeys(released["kda_layers"], "linear_attention")
        if kinds.keys() - {*numbers}:
            raise ValueError(f"linear_attn_config has a layer beyond the {len(numbers)}")
    hf.setdefault("layer_types", [kinds.get(n) for n in numbers])
    dense = hf.pop("first_k_dense_replace", 1)
    hf.setdefault("mlp_layer_types", ["dense" if n <= dense else "sparse" for n in numbers])


@splice("hf.opened")
def _(tensors):
    # as transformers writes it: one prefix for experts and dense layers; releases have mlp in dense layers
    tensors = {name.replace(".mlp.", ".block_sparse_moe."): x for name, x in tensors.items()}


@splice("read_adapter_tensors.names", optional=True)
def _(tensors):
    # peft names modules as transformers has them
    in_files = {name: name.replace(".mlp.", ".block_sparse_moe.").replace(".forget_gate.", ".") for name in tensors}
    tensors = {in_files[name]: tensor for name, tensor in tensors.items()}
