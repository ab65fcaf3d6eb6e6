"""Unscaled rotary angles in layers with a window, whose distances are short.

Source: Team OLMo 2025, arXiv 2512.13961.
"""

import dataclasses

from jax import Array

from generator.language import provide
from generator.language.roles import rotary_angles


@provide("Decoder.hidden")
def local_angles(positions, config) -> Array:
    return rotary_angles(positions, dataclasses.replace(config, rope_factor=1.0))
