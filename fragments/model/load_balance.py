"""Load-balancing loss: all experts shall get as many tokens.

Source: Shazeer et al. 2017, arXiv 1701.06538; Fedus et al. 2022, arXiv 2101.03961, section 2.2.
"""

import dataclasses

import jax.numpy as jnp

from generator.marks import emit, requires, splice
from generator.roles import join_layers, routed_tokens, sum_tokens

requires("expert_load")


class Config:
    load_balance: float = 0.01  # weight of the load-balancing loss beside the mean cross-entropy; 0: none


@splice("check_config.bounds")
def _(bounds):
    bounds.update(load_balance=(0, 1e9))


@splice("MixtureOfExperts.chosen")
def _(scores, segment_ids):
    expert_scores = sum_tokens(scores, segment_ids)  # [E]
    emit(expert_scores)


@splice("loss.terms", after="expert_load z_loss")
def _(total, sums, expert_scores, weights, config):
    load, score = sums["expert_load"], join_layers(expert_scores)  # [L, E]
    balance = jnp.sum(load.sum(axis=0) * score.sum(axis=0)) / routed_tokens(load, config) ** 2 * config.experts
    total = total + config.load_balance * balance * jnp.sum(weights)


@splice("test_train.accumulated", "test_train.mean", optional=True)
def _(config):
    config = dataclasses.replace(config, load_balance=0.0)  # no sum over sequences: it differs in parts of a batch


@splice("hf.sizes")
def _():
    yield "router_aux_loss_coef", "load_balance"
