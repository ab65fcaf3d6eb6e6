"""Constant factors of the embeddings and of the outputs of linear maps.

Source: Yang et al. 2022, arXiv 2203.03466, table 8; Zuo et al. 2025, arXiv 2507.22448, section 3.2.
"""

import math

from generator.language import proceed, requires, splice
from generator.language.roles import PositiveFloat

requires("mamba2")


class ModelConfig:
    embedding_multiplier: PositiveFloat = 1.0  # factor of the embeddings
    attention_in_multiplier: PositiveFloat = 1.0  # factor of queries, keys and values
    key_multiplier: PositiveFloat = 1.0  # another one of keys
    attention_out_multiplier: PositiveFloat = 1.0  # factor of what attention adds to the residual
    mamba_in_multiplier: PositiveFloat = 1.0  # factor of all that a state space projects to
    mamba_multipliers: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)  # of its gates, values, writes, reads and steps
    mamba_out_multiplier: PositiveFloat = 1.0  # factor of what it adds to the residual
    mlp_multipliers: tuple[float, ...] = (1.0, 1.0)  # of gates, and of what a feed-forward adds to the residual


@splice("field_problems.kind", after="sampling")
def _(field, value, allowed, requirement):
    if field.name in ("mamba_multipliers", "mlp_multipliers"):
        number = 5 if field.name == "mamba_multipliers" else 2
        allowed = len(value) == number and all(type(x) in (int, float) and 0 < x < math.inf for x in value)
        requirement = f"{number} positive numbers"


@splice("Embedding.parameters")
def _(self, config):
    self.multiplier = config.embedding_multiplier


@splice("Embedding.vectors")
def _(self, x):
    x = self.multiplier * x


@splice("Linear.parameters")
def _(self):
    self.multiplier = 1.0  # of those to which config gives none


@splice("Linear.output", after="linear_bias lora")
def _(self, x, y):
    proceed()
    y = self.multiplier * y


@splice("Attention.parameters")
def _(self, config):
    self.query.multiplier = config.attention_in_multiplier
    self.key.multiplier = config.attention_in_multiplier * config.key_multiplier
    self.value.multiplier = config.attention_in_multiplier
    self.out.multiplier = config.attention_out_multiplier


@splice("Mamba2.parameters")
def _(self, config):
    inputs = self.gate, self.value, self.write, self.read, self.step
    for linear, multiplier in zip(inputs, config.mamba_multipliers, strict=True):
        linear.multiplier = config.mamba_in_multiplier * multiplier
    self.out.multiplier = config.mamba_out_multiplier


@splice("FeedForward.parameters")
def _(self, config):
    self.gate.multiplier, self.down.multiplier = config.mlp_multipliers


@splice("hf.sizes")
def _():
    yield "embedding_multiplier", "embedding_multiplier"
    yield "attention_in_multiplier", "attention_in_multiplier"
    yield "key_multiplier", "key_multiplier"
    yield "attention_out_multiplier", "attention_out_multiplier"
    yield "ssm_in_multiplier", "mamba_in_multiplier"
    yield "ssm_multipliers", "mamba_multipliers"
    yield "ssm_out_multiplier", "mamba_out_multiplier"
    yield "mlp_multipliers", "mlp_multipliers"


@splice("hf.complete")
def _(hf):
    for name in "mlp_multipliers", "ssm_multipliers":
        hf[name] = tuple(map(float, hf[name]))
