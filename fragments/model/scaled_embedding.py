"""Embeddings multiplied by the root of their width.

Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.4.
"""

from generator.language import splice


@splice("Embedding.vectors")
def _(x):
    x = x * x.shape[-1] ** 0.5
