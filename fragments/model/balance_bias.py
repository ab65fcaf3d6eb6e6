"""A bias for the choice of experts, which the load of each moves: balance without a loss for it.

Source: Wang et al. 2024, arXiv 2408.15664; DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.marks import layer_numbers, point, requires, setting, splice
from generator.roles import Config, Decoder, named_arrays

requires("expert_load")


class Config:
    balance_rate: float = 0.001  # by which a step moves the bias of an expert that has too many or too few tokens


@splice("MixtureOfExperts.parameters")
def _(self, config):
    # of the choice alone, so its gradient is zero and the optimizer leaves it as it is
    self.balance_bias = nnx.Param(jnp.zeros(config.experts), axes=(None,))


@splice("MixtureOfExperts.choice")
def _(self, scores, weights, chosen):
    ranks = scores + self.balance_bias
    point("MixtureOfExperts.ranks", ranks)
    _, chosen = jax.lax.top_k(ranks, self.active)  # [B, T, A]: the experts of each token
    weights = jnp.take_along_axis(scores, chosen, axis=-1)  # [B, T, A]


def balance(updates: Decoder, load: Array, config: Config) -> Decoder:
    """Updates of the parameters, with those of the biases: up where an expert had fewer tokens than the mean, or down.

    load [L, E]: tokens of each expert in the step, by the layers that have experts.
    """
    steps = config.balance_rate * jnp.sign(load.mean(axis=-1, keepdims=True) - load)
    arrays, start = named_arrays(updates), 0
    for stack, numbers in layer_numbers().items():
        if setting("has_kinds"):
            if f"{stack}.mlp.balance_bias" not in arrays:
                continue  # only some kinds of layer have experts
        arrays[f"{stack}.mlp.balance_bias"] = steps[start : start + len(numbers)]
        start += len(numbers)
    return jax.tree.unflatten(jax.tree.structure(updates), arrays.values())


@splice("train_step.updates")
def _(updates, sums, config):
    updates = balance(updates, sums["expert_load"], config)


@splice("hf.layer_tensors")
def _():
    yield "mlp.balance_bias", "model.layers.{}.mlp.gate.e_score_correction_bias", "e -> e"


@splice("hf.complete")
def _(hf):
    hf.setdefault("topk_method", "noaux_tc")  # as scoring_func


@splice("hf.structure")
def _():
    yield "topk_method", "noaux_tc", "experts that are chosen by that method"
