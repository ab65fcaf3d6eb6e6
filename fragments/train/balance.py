"""Auxiliary-loss-free load balancing: an expert's bias rises below the mean load, and falls above it.

Source: Wang et al. 2024, arXiv 2408.15664; DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import layers, requires, setting, splice
from generator.language.roles import Config, Decoder, NonNegativeFloat, named_arrays

requires("balance_bias", "expert_load")


class TrainConfig:
    balance_rate: NonNegativeFloat = 0.001  # how far a step moves the bias of an expert with too many or too few tokens


def balance(updates: Decoder, load: Array, config: Config) -> Decoder:
    """Returns `updates` with the biases of experts: up for fewer tokens than the mean, down for more.

    load [L, E]: tokens of each expert in this step, in the L layers that have experts.
    """
    steps = config.balance_rate * jnp.sign(load.mean(axis=-1, keepdims=True) - load)
    arrays = named_arrays(updates)
    start = 0
    for stack, numbers in layers.stacks.items():
        if setting("has_kinds"):
            if f"{stack}.mlp.balance_bias" not in arrays:
                continue  # only some kinds of layer have experts
        arrays[f"{stack}.mlp.balance_bias"] = steps[start : start + len(numbers)]
        start += len(numbers)
    return jax.tree.unflatten(jax.tree.structure(updates), arrays.values())


@splice("train_step.updates", optional=True)  # absent where the model itself is frozen
def _(updates, sums, config):
    updates = balance(updates, sums["expert_load"], config)
