"""Learning rate: a linear warm-up, then half a cosine.

Source: Loshchilov and Hutter 2017, arXiv 1608.03983, section 3.
"""

import math

import jax.numpy as jnp
from jax import Array


class Config:
    learning_rate: float = 3e-4  # at its peak
    warmup_ratio: float = 0.01  # share of the steps over which the learning rate rises from 0 to its peak
    final_ratio: float = 0.1  # learning rate of the last step over its peak


def learning_rate(done: Array, config: Config) -> Array:
    """The rate of the step after `done` ones: up to the peak in a line, then down half a cosine to the last step's."""
    step = done + 1
    warmup = math.ceil(config.warmup_ratio * config.steps)
    rise = step / max(warmup, 1)
    progress = jnp.clip((step - warmup) / max(config.steps - warmup, 1), 0, 1)
    fall = config.final_ratio + (1 - config.final_ratio) * (1 + jnp.cos(jnp.pi * progress)) / 2
    return config.learning_rate * jnp.minimum(rise, fall)
