"""Rotation by negative angles.

Source: Karpathy 2025, https://github.com/karpathy/nanochat.
"""

from generator.language import splice


@splice("rotary_angles.frequencies", after="rope_linear rope_llama3 yarn")
def _(frequencies):
    frequencies = -frequencies
