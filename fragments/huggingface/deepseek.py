"""DeepSeek's settings, from its released config.json files or only from the code that reads them."""

from generator.language import setting, splice


@splice("hf.complete")
def _(hf):
    hf.setdefault("rope_interleave", True)
    hf.setdefault("scoring_func", "sigmoid")
    hf.setdefault("topk_method", "noaux_tc")
    hf.setdefault("moe_layer_freq", 1)
    for name in "ep_size", "seq_aux", "aux_loss_alpha":  # how its authors trained
        hf.pop(name, None)


@splice("hf.structure")
def _():
    yield (
        "rope_interleave",
        setting("rope_interleave"),
        "numbers rotated in the other order (with or without model/rope_interleaved)",
    )
    yield "scoring_func", "sigmoid", "experts with scores of that kind"
    yield "topk_method", "noaux_tc", "experts that are chosen by that method"
    yield "moe_layer_freq", 1, "layers of that pattern"
