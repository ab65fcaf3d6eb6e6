"""AdamW with decoupled weight decay, and clipping by the global norm.

Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2.
"""

import functools
from typing import Literal

import optax

from generator.language import point, splice
from generator.language.roles import decays, learning_rate


class TrainConfig:
    adam_b1: float = 0.9  # decay of the mean of the gradients
    adam_b2: float = 0.95  # decay of the mean of the squared gradients
    moments_dtype: Literal["float32", "bfloat16"] = "float32"  # of the gradients' mean; bfloat16 saves memory
    adam_epsilon: float = 1e-8  # added to the root of the mean square
    weight_decay: float = 0.1  # a step subtracts learning rate * weight_decay of each matrix
    max_gradient_norm: float = 1.0  # clips the global norm of the gradients to this


@splice("check_config.bounds")
def _(bounds):
    bounds.update(adam_b1=(0, 0.999999), adam_b2=(0, 0.999999), weight_decay=(0, 1e9))


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """Returns the optax rule that clips gradients by their global norm and updates the parameters."""
    rate = functools.partial(learning_rate, config=config)
    b1, b2, epsilon, decay = config.adam_b1, config.adam_b2, config.adam_epsilon, config.weight_decay
    with point("make_optimizer.rule", rate, b1, b2, epsilon, decay, config=config):
        # Loshchilov and Hutter 2019, arXiv 1711.05101
        rule = optax.adamw(rate, b1, b2, epsilon, mu_dtype=config.moments_dtype, weight_decay=decay, mask=decays)
    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), rule)
