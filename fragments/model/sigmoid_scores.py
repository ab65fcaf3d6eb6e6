"""Sigmoid scores of experts, each independent of the others.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2.
"""

import jax

from generator.language import splice


@splice("MixtureOfExperts.scores")
def _(logits, scores):
    scores = jax.nn.sigmoid(logits)  # [B, T, E]
