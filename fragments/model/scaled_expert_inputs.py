"""Routing weights on the inputs of experts, in place of their outputs.

Source: Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence (its released code).
"""

from generator.language import splice


@splice("dispatch.rows")
def _(x, weights, pairs, D, rows):
    rows = (x[:, :, None] * weights[..., None].astype(x.dtype)).reshape(-1, D)[pairs]  # [B T A, D]


@splice("dispatch.sum")
def _(y, total):
    total = y.sum(axis=2)[None]
