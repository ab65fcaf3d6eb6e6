"""AdamW with decoupled weight decay, and clipping by the global norm.

Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2.
"""

import functools

import jax
import optax
from flax import nnx

from generator.language import point, splice
from generator.language.roles import learning_rate


class Config:
    adam_b1: float = 0.9  # decay of the mean of the gradients
    adam_b2: float = 0.95  # decay of the mean of their squares
    adam_epsilon: float = 1e-8  # added to the root of the mean square
    weight_decay: float = 0.1  # times the learning rate: the share of a matrix taken off it in a step
    max_gradient_norm: float = 1.0  # a longer gradient, over all parameters, is scaled to this length


@splice("check_config.bounds")
def _(bounds):
    bounds.update(adam_b1=(0, 0.999999), adam_b2=(0, 0.999999), weight_decay=(0, 1e9))


def decays(model):
    """Which parameters decay: matrices, and no norms."""
    with point("decays.matrices", model):
        matrices = jax.tree.map(lambda p: p.replace(len(p.axes) > 1), model, is_leaf=lambda p: isinstance(p, nnx.Param))
    return matrices


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """The rule by which a step changes the parameters, of gradients that are clipped by their global norm."""
    rate = functools.partial(learning_rate, config=config)
    b1, b2, epsilon, decay = config.adam_b1, config.adam_b2, config.adam_epsilon, config.weight_decay
    with point("make_optimizer.rule", rate, b1, b2, epsilon, decay, config=config):
        # Loshchilov and Hutter 2019, arXiv 1711.05101
        rule = optax.adamw(rate, b1, b2, epsilon, weight_decay=decay, mask=decays)
    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), rule)
