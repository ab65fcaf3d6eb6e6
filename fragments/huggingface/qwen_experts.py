"""Experts in Qwen's config.json: in one layer per decoder_sparse_step, except in those of mlp_only_layers."""

from generator.language import layers, setting, splice


@splice("hf.complete")
def _(hf):
    hf.setdefault("num_experts", hf["num_local_experts"])  # as transformers 5 writes it
    hf.setdefault("decoder_sparse_step", 1)
    hf.setdefault("mlp_only_layers", [])


@splice("hf.structure")
def _(config):
    step = setting("decoder_sparse_step")
    sparse = layers.numbers
    yield "decoder_sparse_step", step, "layers with experts in that step"
    dense = [number for number in range(config.layers) if number not in sparse and (number + 1) % step == 0]
    yield "mlp_only_layers", dense, "layers of that pattern"
