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
    warmup_ratio: Annotated[float, 0, 0.999] = 0.01  # share of the steps over which the rate rises from 0 to its peak
    final_ratio: Annotated[float, 0, 1] = 0.1  # learning rate of update number `steps` over the peak


def learning_rate(updates_done: Array, config: TrainConfig) -> Array:
    """Returns the rate of the next update: linear to the peak, then half a cosine. Skipped steps are no updates."""
    peak = config.learning_rate
    warmup = math.ceil(round(config.warmup_ratio * config.steps, 6))  # as 0.07 * 100 is 7.000000000000001
    end = max(config.steps, warmup + 1)
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, end, config.final_ratio * peak)(updates_done + 1)
