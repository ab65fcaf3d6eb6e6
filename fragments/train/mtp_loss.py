"""Multi-token prediction loss: the cross-entropy of tokens after the next, each predicted by an MTP layer.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 2.2 (loss) and 4.2 (weight).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import alike, emit, provide, requires, splice
from generator.language.roles import (
    Cache,
    Config,
    Decoder,
    InputError,
    MTPLayer,
    NonNegativeFloat,
    Pages,
    remat_policy,
    score,
)

requires("mtp")
alike("hidden_and_mtp", "Decoder.hidden")


class TrainConfig:
    mtp_loss_weight: NonNegativeFloat = 0.3  # weight of each MTP layer's cross-entropy in the loss


def shift_left(x: Array) -> Array:
    """Shifts x [B, T] left by one place, with a zero at the end."""
    return jnp.pad(x[:, 1:], ((0, 0), (0, 1)))


def hidden_and_mtp(
    model: Decoder, tokens: Array, targets: Array, weights: Array, positions: Array, config: Config
) -> Array:
    """Computes `Decoder.hidden` [B, T, D]; emits each MTP layer's summed cross-entropy and target count."""
    x = model.hidden(tokens)
    remat = functools.partial(jax.checkpoint, policy=remat_policy(config.remat), prevent_cse=False)

    def mtp_block(carry, layer: MTPLayer):
        h, targets, weights = carry
        h = layer(h, model.embedding(targets, config.dtype))
        follows = shift_left(positions) == positions + 1  # in the same document
        targets, weights = (jnp.where(follows, shift_left(x), 0) for x in (targets, weights))
        log_likelihood, _ = score(model.embedding, h, targets, config)
        mtp_cross_entropy, mtp_targets = -jnp.sum(log_likelihood * weights), jnp.sum(weights)
        emit(mtp_cross_entropy)
        emit(mtp_targets)
        return (h, targets, weights), None

    _, _ = jax.lax.scan(remat(mtp_block), (x, targets, weights), model.mtp)
    return x


@provide("hidden_and_mtp")
def positions(positions) -> Array:
    return positions


@provide("hidden_and_mtp.mtp_block")
def cache() -> Cache:
    return None


@provide("hidden_and_mtp.mtp_block")
def pages() -> Pages:
    return None


@provide("hidden_and_mtp.mtp_block")
def replay() -> Array:
    return None


@splice("loss.hidden")
def _(model, batch, x, config):
    x = hidden_and_mtp(model, batch["tokens"], batch["targets"], batch["weights"], batch["positions"], config)


@splice("loss.terms", after="expert_load load_balance router_z")
def _(total, sums, mtp_cross_entropy, mtp_targets, config):
    total += config.mtp_loss_weight * jnp.sum(mtp_cross_entropy)
    sums |= {"mtp_cross_entropy": mtp_cross_entropy, "mtp_targets": mtp_targets}  # of each MTP layer


@splice("train_step.metrics")
def _(metrics, sums):
    metrics["train/mtp_loss"] = sums["mtp_cross_entropy"].sum() / jnp.maximum(sums["mtp_targets"].sum(), 1)


@splice("check_objective.terms")
def _(config):
    if config.mtp_loss_weight and config.objective != "next_token":
        raise InputError(
            f"--mtp-loss-weight {config.mtp_loss_weight}: is of tokens, not of --objective {config.objective}: give 0"
        )


@splice("test_train.added", optional=True)
def _(config):
    config = dataclasses.replace(config, mtp_loss_weight=0.0)  # MTP layers read targets, which the test changes
