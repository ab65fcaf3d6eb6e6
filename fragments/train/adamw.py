"""AdamW with decoupled weight decay, and clipping by the global norm.

Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2.
"""

import functools
from typing import Annotated, Literal

import optax

from generator.language import point
from generator.language.roles import NonNegativeFloat, PositiveFloat, decays, learning_rate


class TrainConfig:
    adam_b1: Annotated[float, 0, 0.999999] = 0.9  # decay of the mean of the gradients
    adam_b2: Annotated[float, 0, 0.999999] = 0.95  # decay of the mean of the squared gradients
    moments_dtype: Literal["float32", "bfloat16"] = "float32"  # dtype of Adam's first moment; the second one is float32
    adam_epsilon: PositiveFloat = 1e-8  # added to the root of the mean square
    weight_decay: NonNegativeFloat = 0.1  # a step subtracts learning rate * weight_decay of each matrix
    max_gradient_norm: PositiveFloat = 1.0  # clips the global norm of the gradients to this


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """Returns the optax rule that clips gradients by their global norm and updates the parameters."""
    rate = functools.partial(learning_rate, config=config)
    b1, b2, epsilon, decay = config.adam_b1, config.adam_b2, config.adam_epsilon, config.weight_decay
    with point("make_optimizer.rule", rate, b1, b2, epsilon, decay, config=config):
        # Loshchilov and Hutter 2019, arXiv 1711.05101
        rule = optax.adamw(rate, b1, b2, epsilon, mu_dtype=config.moments_dtype, weight_decay=decay, mask=decays)
    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), rule)
