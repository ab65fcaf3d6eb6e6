"""The loss of the critic: squared errors of its values, clipped as the ratios of the policy are.

Source: Schulman et al. 2017, arXiv 1707.06347, equation 9; the clipped form is that of the code of its authors, which
Huang et al. 2022, "The 37 implementation details of proximal policy optimization", describe as detail 9.
"""

import jax.numpy as jnp
from jax import Array

from generator.language import alike, requires, setting, splice
from generator.language.roles import Decoder, InputError, NonNegativeFloat, PositiveFloat, token_values

requires("value_head", "policy_loss")

alike("batch_values", "target_log_likelihoods")


class TrainConfig:
    value_coefficient: NonNegativeFloat = 0.1  # weight of the critic's loss
    value_clip: PositiveFloat = 0.2  # values that moved further in a rollout give no gradient where that helps


def value_loss(values: Array, batch: dict[str, Array], config: TrainConfig) -> Array:
    """Returns half the squared errors of values [B, T], summed by weight."""
    old, returns = batch["values"], batch["returns"]
    clipped = old + jnp.clip(values - old, -config.value_clip, config.value_clip)
    errors = jnp.maximum((values - returns) ** 2, (clipped - returns) ** 2)
    return jnp.sum(errors * batch["weights"]) / 2


def batch_values(model: Decoder, batch: dict[str, Array]) -> Array:
    """Returns the values [B, T] of what each token ends."""
    return token_values(model, model.hidden(batch["tokens"]))


@splice("check_objective.terms", before="policy_loss")
def _(config):
    if config.ratio_per == "sequence":
        raise InputError("--ratio-per sequence: a critic has an advantage for each token: leave it out")


@splice("loss.terms", after="expert_load load_balance router_z mtp_loss indexer")
def _(total, sums, model, batch, x, config):
    if config.objective == setting("policy_objective"):
        critic_loss = value_loss(token_values(model, x), batch, config)
        total += config.value_coefficient * critic_loss
        sums["objective"]["value_loss"] = critic_loss


@splice("abstract_batch.fields", after="policy_loss")
def _(dtypes, config):
    if config.objective == setting("policy_objective"):
        dtypes |= {"values": "float32", "returns": "float32"}
