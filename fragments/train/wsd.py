"""Learning rate: a linear warm-up, a constant peak, then an exponential decay over the last steps.

Source: Hu et al. 2024, arXiv 2404.06395, section 4.
"""

import math
from typing import Annotated

import jax.numpy as jnp
from jax import Array

from generator.language.roles import PositiveFloat


class TrainConfig:
    learning_rate: PositiveFloat = 3e-4  # at its peak
    warmup_ratio: Annotated[float, 0, 0.999] = 0.01  # share of the steps over which the rate rises from 0 to its peak
    decay_ratio: Annotated[float, 1e-9, 1] = 0.1  # share of the steps, the last ones, over which it falls
    final_ratio: Annotated[float, 1e-9, 1] = 0.1  # learning rate of update number `steps` over the peak


def learning_rate(updates_done: Array, config: TrainConfig) -> Array:
    """Returns the rate of the next update; skipped steps are no updates.

    For a longer run, resume with more `steps` from a checkpoint before the decay.
    """
    warmup = max(1, math.ceil(round(config.warmup_ratio * config.steps, 6)))  # as 0.07 * 100 is 7.000000000000001
    decay = math.ceil(round(config.decay_ratio * config.steps, 6))
    decayed = jnp.clip((updates_done + 1 - (config.steps - decay)) / decay, 0, 1)
    return config.learning_rate * jnp.minimum(1, (updates_done + 1) / warmup) * config.final_ratio**decayed
