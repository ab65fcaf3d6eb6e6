"""NTK-aware rotary frequencies: alpha stretches the slowest, and leaves the fastest as it is.

Source: Tencent Hunyuan 2024, arXiv 2411.02265 (its released code); bloc97 2023, NTK-aware scaled RoPE.
"""

import jax.numpy as jnp

from generator.language import requires, splice
from generator.language.roles import PositiveFloat

requires("scaled_rope")


class ModelConfig:
    rope_alpha: PositiveFloat = 1.0  # divides the slowest frequency


@splice("rotary_angles.frequencies")
def _(frequencies, config):
    slowness = jnp.arange(len(frequencies)) / max(len(frequencies) - 1, 1)  # fastest: 0, slowest: 1
    frequencies = frequencies * config.rope_alpha**-slowness


@splice("hf.sizes")
def _():
    yield "rope_scaling.alpha", "rope_alpha"


@splice("hf.complete", after="scaled_rope")
def _(hf):
    hf.setdefault("rope_scaling.factor", 1.0)


@splice("hf.rope_scaling")
def _():
    yield "rope_scaling.rope_type", "dynamic", "a rope of that scaling"
    yield "rope_scaling.factor", 1.0, "a rope of that scaling"
