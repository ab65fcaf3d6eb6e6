"""Soft cap on attention scores.

Source: Gemma Team 2024, arXiv 2408.00118, section 2; Bello et al. 2016, arXiv 1611.09940.
"""

import functools

import jax.numpy as jnp
import numpy as np

from generator.language import excludes, provide, splice
from generator.language.roles import PositiveFloat

excludes("attend_cudnn")  # its kernel has no caps


class ModelConfig:
    attention_soft_cap: PositiveFloat  # bound on the absolute value of attention scores


@splice("Attention.parameters")
def _(self, config):
    self.soft_cap = config.attention_soft_cap


@provide("Attention.__call__")
def soft_cap(self) -> float:
    return self.soft_cap


@splice("attend.scores", "attend_cached.scores", "attend_token.scores", optional=True)
def _(scores, soft_cap):
    scores = soft_cap * jnp.tanh(scores / soft_cap)


@splice("attend_splash.options", optional=True)
def _(options, soft_cap):
    options["attn_logits_soft_cap"] = soft_cap


@splice("test_attention.run", "test_pages_kernel.run", after="sliding_window", optional=True)
def _(run):
    run = functools.partial(run, soft_cap=2.0)


@splice("attend_slowly.scores", optional=True)
def _(scores):
    scores = 2 * np.tanh(scores / 2)


@splice("hf.sizes")
def _():
    yield "attn_logit_softcapping", "attention_soft_cap"
