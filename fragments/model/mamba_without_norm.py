"""Mamba-2 whose gated output is not normed.

Source: Zuo et al. 2025, arXiv 2507.22448, section 2 (its released code).
"""

from generator.language import requires, splice

requires("mamba2")


@splice("Mamba2.norm", "Mamba2.normed", "hf.mamba_norm")
def _():
    pass
