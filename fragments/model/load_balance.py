"""Load-balancing loss: draws the experts of a layer towards equal numbers of tokens.

Source: Shazeer et al. 2017, arXiv 1701.06538; Fedus et al. 2022, arXiv 2101.03961, section 2.2.
"""

import dataclasses

import jax.numpy as jnp

from generator.language import emit, requires, splice
from generator.language.roles import NonNegativeFloat, join_layers, routed_tokens, sum_tokens

requires("expert_load")


class TrainConfig:
    load_balance: NonNegativeFloat = 0.01  # weight of the load-balancing loss beside the mean cross-entropy; 0: none


@splice("MixtureOfExperts.chosen")
def _(scores, segment_ids):
    expert_scores = sum_tokens(scores, segment_ids)  # [E]
    emit(expert_scores)


@splice("loss.terms", after="expert_load")
def _(total, sums, batch_sums, expert_scores, config):
    totals = batch_sums or sums  # of the whole batch; this may be a microbatch of it
    load = totals["expert_load"]  # [L, E]
    # a mean over layers, so that its weight does not depend on their number
    balance = jnp.sum(load * join_layers(expert_scores)) * load.size / routed_tokens(load, config) ** 2
    total += config.load_balance * balance * totals["targets"]


@splice("test_train.accumulated", "test_train.mean", optional=True)
def _(config):
    config = dataclasses.replace(config, load_balance=1.0)  # large enough to show a balance of microbatches


@splice("hf.sizes")
def _():
    yield "router_aux_loss_coef", "load_balance"
