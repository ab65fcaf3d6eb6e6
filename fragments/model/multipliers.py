"""Constant factors of embeddings, residual branches, attention scores and logits.

Source: Yang et al. 2022, arXiv 2203.03466, table 8; IBM Granite Team 2024, Granite 3.0 Language Models, section 3.
"""

from generator.language import proceed, splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    embedding_multiplier: PositiveFloat = 1.0  # factor of the embeddings
    residual_multiplier: PositiveFloat = 1.0  # factor of what attention and feed-forward add to the residual
    attention_multiplier: PositiveFloat  # factor of the scores, in place of head_size**-0.5
    logit_divisor: PositiveFloat = 1.0  # divides the logits


@splice("Embedding.parameters")
def _(self, config):
    self.multiplier, self.logit_divisor = config.embedding_multiplier, config.logit_divisor


@splice("Embedding.vectors")
def _(self, x):
    x = self.multiplier * x


@splice("Embedding.logits")
def _(self, logits):
    proceed()
    logits = logits / self.logit_divisor


@splice("Block.parameters")
def _(self, config):
    self.multiplier = config.residual_multiplier


@splice("Block.attention", "Block.mlp")
def _(self, h):
    h = self.multiplier * h


@splice("Attention.parameters", optional=True)
def _(self, config):
    # attend divides by the root of the head size
    self.query_scale = config.attention_multiplier * config.head_size**0.5


@splice("hf.sizes")
def _():
    yield "embedding_multiplier", "embedding_multiplier"
    yield "residual_multiplier", "residual_multiplier"
    yield "attention_multiplier", "attention_multiplier"
    yield "logits_scaling", "logit_divisor"
