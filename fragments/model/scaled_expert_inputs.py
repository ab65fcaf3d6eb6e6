"""Experts that are given each token times its weight, in place of weights on what they make of it.

Source: Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence (its released code).
"""

from generator.marks import splice


@splice("dispatch.inputs")
def _(experts, x, order, sizes, weights, D, y):
    pairs = x[:, :, None] * weights[..., None].astype(x.dtype)  # [B, T, A, D]
    y = experts(pairs.reshape(-1, D)[order], sizes)  # [B T A, D]


@splice("dispatch.sum")
def _(y, total):
    total = y.sum(axis=2)[None]
