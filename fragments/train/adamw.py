"""AdamW with decoupled weight decay, and clipping by the global norm.

Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2.
"""

import functools
from typing import Literal

import optax

from generator.language import point, splice
from generator.language.roles import decays, learning_rate


class Config:
    adam_b1: float = 0.9  # decay of the mean of the gradients
    adam_b2: float = 0.95  # decay of the mean of their squares
    moments_dtype: Literal["float32", "bfloat16"] = "float32"  # of the mean of the gradients; bfloat16 saves memory
    adam_epsilon: float = 1e-8  # added to the root of the mean square
    weight_decay: float = 0.1  # times the learning rate: the share of a matrix taken off it in a step
    max_gradient_norm: float = 1.0  # a longer gradient, over all parameters, is scaled to this length


@splice("check_config.bounds")
def _(bounds):
    bounds.update(adam_b1=(0, 0.999999), adam_b2=(0, 0.999999), weight_decay=(0, 1e9))


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """The rule by which a step changes the parameters, of gradients that are clipped by their global norm."""
    rate = functools.partial(learning_rate, config=config)
    b1, b2, epsilon, decay = config.adam_b1, config.adam_b2, config.adam_epsilon, config.weight_decay
    with point("make_optimizer.rule", rate, b1, b2, epsilon, decay, config=config):
        # Loshchilov and Hutter 2019, arXiv 1711.05101
        rule = optax.adamw(rate, b1, b2, epsilon, mu_dtype=config.moments_dtype, weight_decay=decay, mask=decays)
    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), rule)
