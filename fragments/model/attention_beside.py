"""Attention beside a state space: both take the same normed input.

Source: Zuo et al. 2025, arXiv 2507.22448, section 2.1.
"""

from generator.language import proceed, requires, splice
from generator.language.roles import Attention

requires("mamba2")


@splice("Block.mixer", after="mamba2")
def _(self, config, rngs):
    proceed()
    self.attention = Attention(config, rngs)


@splice("Block.mamba")
def _(self, h):
    of_states = self.mamba(h)
    of_attention = self.attention(h)
    h = of_states + of_attention


@splice("hf.attention_norm")
def _():
    pass
