"""Rotary frequencies for longer contexts: long waves are stretched, short ones kept.

Source: Grattafiori et al. 2024, arXiv 2407.21783, section 3.4.2; numbers of the released models.
"""

import jax.numpy as jnp

from generator.language import requires, splice
from generator.language.roles import PositiveFloat, PositiveInt

requires("scaled_rope")


class ModelConfig:
    rope_factor: PositiveFloat = 8.0  # stretches waves with at most rope_low_turns turns
    rope_low_turns: PositiveFloat = 1.0  # turns in the original context, up to which waves are fully stretched
    rope_high_turns: PositiveFloat = 4.0  # turns in the original context, from which on waves are kept
    rope_original_context: PositiveInt = 8192  # context length of pretraining, in tokens


@splice("check_config.together")
def _(config, problems):
    if config.rope_high_turns < config.rope_low_turns:
        problems.append(f"--rope-high-turns {config.rope_high_turns}: must be at least --rope-low-turns")


@splice("rotary_angles.frequencies")
def _(frequencies, config):
    turns = config.rope_original_context / (2 * jnp.pi) * frequencies
    kept = jnp.clip((turns - config.rope_low_turns) / (config.rope_high_turns - config.rope_low_turns), 0, 1)
    frequencies = frequencies * (kept + (1 - kept) / config.rope_factor)


@splice("hf.sizes")
def _():
    yield "rope_scaling.factor", "rope_factor"
    yield "rope_scaling.low_freq_factor", "rope_low_turns"
    yield "rope_scaling.high_freq_factor", "rope_high_turns"
    yield "rope_scaling.original_max_position_embeddings", "rope_original_context"


@splice("hf.rope_scaling")
def _():
    yield "rope_scaling.rope_type", "llama3", "a rope of that scaling"
