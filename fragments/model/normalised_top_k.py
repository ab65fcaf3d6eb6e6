"""Weights of the chosen experts that sum to one: the softmax over their logits alone.

Source: Shazeer et al. 2017, arXiv 1701.06538, section 2.1.
"""

from generator.language import splice


@splice("MixtureOfExperts.weights")
def _(weights):
    weights = weights / weights.sum(axis=-1, keepdims=True)


@splice("hf.top_k_norm", optional=True)
def _():
    yield "norm_topk_prob", True, "weights as the softmax gives them, by leaving model/normalised_top_k out,"
