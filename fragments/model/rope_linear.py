"""Linear scaling of the rotary embedding: positions divided by a factor.

Source: Chen et al. 2023, arXiv 2306.15595, section 3.2.
"""

from generator.language import requires, splice
from generator.language.roles import PositiveFloat

requires("scaled_rope")


class ModelConfig:
    rope_factor: PositiveFloat = 4.0  # divides positions


@splice("rotary_angles.frequencies")
def _(frequencies, config):
    frequencies = frequencies / config.rope_factor


@splice("hf.sizes")
def _():
    yield "rope_scaling.factor", "rope_factor"


@splice("hf.rope_scaling")
def _():
    yield "rope_scaling.rope_type", "linear", "a rope of that scaling"
