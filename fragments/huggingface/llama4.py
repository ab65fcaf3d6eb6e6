"""Llama 4's layers with rotation and chunked attention, and features that its config.json can turn off."""

from generator.language import layers, point, splice


def attention_types(rotated: list[int]) -> list[str]:
    """Returns the type of each layer, by whether it rotates queries and keys."""
    return ["chunked_attention" if rotates else "full_attention" for rotates in rotated]


@splice("hf.complete", before="attention rope")
def _(hf):
    hf = {"head_dim": 128, "rope_theta": 500_000.0, "intermediate_size_mlp": 16384} | hf
    hf = {"attn_scale": 0.1, "floor_scale": 8192, "router_aux_loss_coef": 0.001} | hf
    numbers = range(1, hf["num_hidden_layers"] + 1)
    interval = hf.get("no_rope_layer_interval", 4)
    hf["no_rope_layers"] = hf.get("no_rope_layers") or [int(number % interval != 0) for number in numbers]
    hf.setdefault("layer_types", attention_types(hf["no_rope_layers"]))
    for name in "attn_temperature_tuning", "use_qk_norm":
        hf[name] = bool(hf.get(name, True))  # some released files have a 4


@splice("hf.sizes")
def _():
    yield "intermediate_size_mlp", "mlp_width"  # present even if all layers have experts


@splice("hf.structure")
def _(config):
    rotating = layers.numbers
    rotated = [int(number in rotating) for number in range(config.layers)]
    yield "no_rope_layers", rotated, "layers of that pattern"
    yield "layer_types", attention_types(rotated), "layers that attend in chunks where they rotate"
    with point("hf.temperature"):
        yield "attn_temperature_tuning", False, "model/attention_temperature"
    with point("hf.qk_l2_norm"):
        yield "use_qk_norm", False, "model/qk_l2_norm"
