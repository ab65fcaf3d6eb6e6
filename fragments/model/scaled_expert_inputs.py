"""Experts that are given each token times its weight, in place of weights on what they make of it.

Source: Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence (its released code).
"""

from generator.language import splice


@splice("dispatch.rows")
def _(x, weights, pairs, D, rows):
    rows = (x[:, :, None] * weights[..., None].astype(x.dtype)).reshape(-1, D)[pairs]  # [B T A, D]


@splice("dispatch.sum")
def _(y, total):
    total = y.sum(axis=2)[None]
