"""SwiGLU with clamped inputs, a steeper gate, and the other factor shifted by one.

Source: OpenAI 2025, arXiv 2508.10925, section 2.2; numbers of the released models.
"""

import jax
import jax.numpy as jnp

from generator.language import splice
from generator.language.roles import PositiveFloat


class ModelConfig:
    swiglu_alpha: PositiveFloat = 1.702  # slope of the sigmoid in the gate; the default is close to a GELU
    swiglu_limit: PositiveFloat = 7.0  # upper bound of the gate, and bound on the absolute value of the other factor


@splice("Experts.parameters")
def _(self, config):
    self.alpha, self.limit = config.swiglu_alpha, config.swiglu_limit


@splice("Experts.activation")
def _(self, gate, up, h):
    gate, up = jnp.minimum(gate, self.limit), jnp.clip(up, -self.limit, self.limit)
    h = gate * jax.nn.sigmoid(self.alpha * gate) * (up + 1)


@splice("hf.sizes")
def _():
    yield "swiglu_alpha", "swiglu_alpha"
    yield "swiglu_limit", "swiglu_limit"
