"""YaRN: rotary frequencies for longer contexts, stretched where they are low.

Source: Peng et al. 2023, arXiv 2309.00071, sections 3.2 and 3.4.
"""

import math
from typing import Annotated

import jax.numpy as jnp

from generator.language import point, requires, setting, splice
from generator.language.roles import PositiveFloat, PositiveInt

requires("scaled_rope", "rope_scale")


class ModelConfig:
    rope_factor: Annotated[float, 1, 1e9] = 4.0  # stretches waves with at most rope_slow_turns turns
    rope_fast_turns: PositiveFloat = 32.0  # turns in the original context, from which on waves are kept
    rope_slow_turns: PositiveFloat = 1.0  # turns in the original context, up to which waves are fully stretched
    rope_original_context: PositiveInt = 4096  # context length of pretraining, in tokens
    rope_scale: PositiveFloat = 1.0  # factor of queries and keys


@splice("check_config.together")
def _(config, problems):
    if config.rope_fast_turns <= config.rope_slow_turns:
        problems.append(f"--rope-fast-turns {config.rope_fast_turns}: must be above --rope-slow-turns")


@splice("rotary_angles.frequencies")
def _(frequencies, config):
    pairs = len(frequencies)
    # indices of the pairs with so many turns in the original context
    fast, slow = (
        pairs * math.log(config.rope_original_context / (2 * math.pi * turns), config.rope_theta)
        for turns in (config.rope_fast_turns, config.rope_slow_turns)
    )
    if setting("yarn_truncate"):
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, 2 * pairs - 1)
    stretched = jnp.clip((jnp.arange(pairs) - fast) / max(slow - fast, 0.001), 0, 1)
    frequencies = frequencies * (1 - stretched + stretched / config.rope_factor)


@splice("Attention.parameters")
def _(self, config):
    self.rope_scale = config.rope_scale


@splice("hf.sizes")
def _():
    yield "rope_scaling.factor", "rope_factor"
    yield "rope_scaling.beta_fast", "rope_fast_turns"
    yield "rope_scaling.beta_slow", "rope_slow_turns"
    yield "rope_scaling.original_max_position_embeddings", "rope_original_context"
    yield "rope_scaling.attention_factor", "rope_scale"


@splice("hf.complete", after="scaled_rope")
def _(hf):
    hf.setdefault("rope_scaling.beta_fast", 32.0)
    hf.setdefault("rope_scaling.beta_slow", 1.0)
    hf.setdefault("rope_scaling.truncate", True)
    with point("hf.yarn_scale", hf):
        hf.setdefault("rope_scaling.attention_factor", 0.1 * math.log(hf.get("rope_scaling.factor", 1.0)) + 1)


@splice("hf.rope_scaling")
def _(config):
    yield "rope_scaling.rope_type", "yarn", "a rope of that scaling"
    yield "rope_scaling.truncate", setting("yarn_truncate"), "the setting yarn_truncate"
    with point("hf.yarn_mscale", config):
        yield "rope_scaling.mscale", None, "a rope of that scaling"
