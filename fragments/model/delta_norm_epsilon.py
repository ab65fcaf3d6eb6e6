"""A gated norm with an epsilon of its own in the delta rule.

Source: Ai2 2026, arXiv 2604.03444 (its released code).
"""

from generator.language import requires, splice

requires("gated_delta_net")


@splice("GatedDeltaNet.epsilon")
def _(self):
    self.epsilon = 1e-5
