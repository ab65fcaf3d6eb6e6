"""Learning rate: a linear warm-up, then half a cosine.

Source: Loshchilov and Hutter 2017, arXiv 1608.03983, section 3.
"""

import math
from typing import Annotated

import optax
from jax import Array

from generator.language.roles import PositiveFloat


class TrainConfig:
    learning_rate: PositiveFloat = 3e-4  # at its peak
    warmup_ratio: Annotated[float, 0, 1] = 0.01  # share of the steps over which the rate rises from 0 to its peak
    final_ratio: Annotated[float, 0, 1] = 0.1  # learning rate of the last step over its peak


def learning_rate(done: Array, config: TrainConfig) -> Array:
    """Returns the rate of step `done` + 1: linear to the peak, then half a cosine down to the last step's."""
    peak, warmup = config.learning_rate, math.ceil(config.warmup_ratio * config.steps)
    end = max(config.steps, warmup + 1)
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, end, config.final_ratio * peak)(done + 1)
