"""z-loss: keeps the softmax's normalizer near one.

Source: Chowdhery et al. 2022, arXiv 2204.02311, section 5.
"""

import jax.numpy as jnp

from generator.language import splice
from generator.language.roles import InputError, NonNegativeFloat


class TrainConfig:
    z_loss: NonNegativeFloat = 0.0  # weight of the squared log normalizer of the softmax; not in train/loss; 0: none


@splice("loss.total")
def _(total, cross_entropy, log_normalizer, weights, config):
    total = cross_entropy + config.z_loss * jnp.sum(log_normalizer**2 * weights)


@splice("check_objective.terms")
def _(config):
    if config.z_loss and config.objective != "next_token":
        raise InputError(f"--z-loss {config.z_loss}: is one of tokens, not of --objective {config.objective}: give 0")
