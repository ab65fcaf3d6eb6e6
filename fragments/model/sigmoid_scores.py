"""Scores of experts by a sigmoid: each expert is scored by itself.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2.
"""

import jax

from generator.marks import splice


@splice("MixtureOfExperts.scores")
def _(logits, scores):
    scores = jax.nn.sigmoid(logits)  # [B, T, E]


@splice("hf.complete")
def _(hf):
    hf.setdefault("scoring_func", "sigmoid")  # the released files say it, transformers does not read it


@splice("hf.structure")
def _():
    yield "scoring_func", "sigmoid", "experts with scores of that kind"
