"""Router z-loss: keeps the logits of routers small.

Source: Zoph et al. 2022, arXiv 2202.08906, section 3.3.
"""

import dataclasses

import jax

from generator.language import emit, requires, splice
from generator.language.roles import NonNegativeFloat, join_layers, routed_tokens, sum_tokens

requires("expert_load")


class TrainConfig:
    router_z: NonNegativeFloat = 0.001  # weight of the router z-loss, a mean over tokens and layers; 0: none


@splice("MixtureOfExperts.chosen")
def _(logits, segment_ids):
    router_z = sum_tokens(jax.nn.logsumexp(logits, axis=-1, keepdims=True) ** 2, segment_ids)  # [1]
    emit(router_z)


@splice("loss.terms", after="load_balance expert_load")
def _(total, sums, batch_sums, router_z, config):
    mean_router_z = join_layers(router_z).sum() / routed_tokens((batch_sums or sums)["expert_load"], config)
    total += config.router_z * mean_router_z * (batch_sums or sums)["targets"]


@splice("test_train.accumulated", "test_train.mean", after="load_balance", optional=True)
def _(config):
    config = dataclasses.replace(config, router_z=1.0)
