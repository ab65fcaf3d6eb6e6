"""Whether the weights of the chosen experts sum to one, by config.json."""

from generator.language import point, splice


@splice("hf.complete")
def _(hf):
    hf.setdefault("norm_topk_prob", False)


@splice("hf.structure")
def _():
    with point("hf.top_k_norm"):
        yield "norm_topk_prob", False, "normalised weights of experts (model/normalised_top_k)"
