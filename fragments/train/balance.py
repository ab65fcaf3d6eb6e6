"""The biases of experts, moved by their load: up for one with fewer tokens than the mean, down for one with more.

Source: Wang et al. 2024, arXiv 2408.15664; DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import layers, requires, setting, splice
from generator.language.roles import Config, Decoder, named_arrays

requires("balance_bias", "expert_load")


class Config:
    balance_rate: float = 0.001  # by which a step moves the bias of an expert that has too many or too few tokens


@splice("check_config.bounds")
def _(bounds):
    bounds.update(balance_rate=(0, 1e9))


def balance(updates: Decoder, load: Array, config: Config) -> Decoder:
    """The updates with those of the biases of experts: up where one had fewer tokens than the mean, else down.

    load [L, E]: the tokens of each expert in this step, of all layers that have experts.
    """
    steps = config.balance_rate * jnp.sign(load.mean(axis=-1, keepdims=True) - load)
    arrays, start = named_arrays(updates), 0
    for stack, numbers in layers.stacks.items():
        if setting("has_kinds"):
            if f"{stack}.mlp.balance_bias" not in arrays:
                continue  # only some kinds of layer have experts
        arrays[f"{stack}.mlp.balance_bias"] = steps[start : start + len(numbers)]
        start += len(numbers)
    return jax.tree.unflatten(jax.tree.structure(updates), arrays.values())


@splice("train_step.updates", optional=True)  # not where the model itself is not trained
def _(updates, sums, config):
    updates = balance(updates, sums["expert_load"], config)
