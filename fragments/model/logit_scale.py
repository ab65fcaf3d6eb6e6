"""Logits multiplied by a constant.

Source: Yang et al. 2022, arXiv 2203.03466, table 8.
"""

from generator.language import proceed, splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    logit_scale: PositiveFloat  # factor of the logits


@splice("Embedding.parameters")
def _(self, config):
    self.logit_scale = config.logit_scale


@splice("Embedding.logits")
def _(self, logits):
    proceed()
    logits = self.logit_scale * logits


@splice("hf.sizes")
def _():
    yield "logit_scale", "logit_scale"
