"""Norms without parameters.

Source: Groeneveld et al. 2024, arXiv 2402.00838, section 2.1.
"""

from generator.language import splice


@splice("Norm.parameters")
def _():
    pass


@splice("Norm.scaled")
def _():
    pass


@splice("hf.norm", "hf.attention_norm", "hf.mlp_norm")
def _():
    pass


@splice("hf.embedding_norm", optional=True)
def _():
    pass
