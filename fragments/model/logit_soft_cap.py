"""Soft cap on logits.

Source: Gemma Team 2024, arXiv 2408.00118, section 2; Bello et al. 2016, arXiv 1611.09940.
"""

import jax.numpy as jnp

from generator.language import proceed, splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    logit_soft_cap: PositiveFloat  # bound on the absolute value of logits


@splice("Embedding.parameters")
def _(self, config):
    self.soft_cap = config.logit_soft_cap


@splice("Embedding.logits")
def _(self, logits):
    proceed()
    logits = self.soft_cap * jnp.tanh(logits / self.soft_cap)


@splice("hf.sizes")
def _():
    yield "final_logit_softcapping", "logit_soft_cap"
