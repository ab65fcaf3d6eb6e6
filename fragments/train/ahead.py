"""Multi-token prediction: the loss counts tokens after the next too, each predicted by a layer ahead.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 2.2 (loss) and 4.2 (weight).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import alike, emit, provide, requires, splice
from generator.language.roles import Cache, Config, Decoder, LayerAhead, Pages, remat_policy, score

requires("layers_ahead")
alike("hidden_and_ahead", "Decoder.hidden")


class Config:
    ahead_weight: float = 0.3  # weight in the loss of each cross-entropy of tokens after the next


@splice("check_config.bounds")
def _(bounds):
    bounds.update(ahead_weight=(0, 1e9))


def one_later(x: Array) -> Array:
    """What x [B, T] has one place later; zero at the end."""
    return jnp.pad(x[:, 1:], ((0, 0), (0, 1)))


def hidden_and_ahead(
    model: Decoder, tokens: Array, targets: Array, weights: Array, positions: Array, config: Config
) -> Array:
    """`Decoder.hidden`, [B, T, D], and of each layer ahead the cross-entropy, summed over the targets that count."""
    x = model.hidden(tokens)
    remat = functools.partial(jax.checkpoint, policy=remat_policy(config.remat), prevent_cse=False)

    def ahead_block(carry, layer: LayerAhead):
        h, targets, weights = carry
        h = layer(h, model.embedding(targets, config.dtype))
        follows = one_later(positions) == positions + 1  # in the same document
        targets, weights = (jnp.where(follows, one_later(x), 0) for x in (targets, weights))
        log_likelihood, _ = score(model.embedding, h, targets, config)
        ahead_cross_entropy, ahead_targets = -jnp.sum(log_likelihood * weights), jnp.sum(weights)
        emit(ahead_cross_entropy)
        emit(ahead_targets)
        return (h, targets, weights), None

    _, _ = jax.lax.scan(remat(ahead_block), (x, targets, weights), model.ahead)
    return x


@provide("hidden_and_ahead")
def positions(positions) -> Array:
    return positions


@provide("hidden_and_ahead.ahead_block")
def cache() -> Cache:
    return None


@provide("hidden_and_ahead.ahead_block")
def pages() -> Pages:
    return None


@splice("loss.hidden")
def _(model, batch, x, config):
    x = hidden_and_ahead(model, batch["tokens"], batch["targets"], batch["weights"], batch["positions"], config)


@splice("loss.terms", after="expert_load load_balance router_z")
def _(total, sums, ahead_cross_entropy, ahead_targets, config):
    total += config.ahead_weight * jnp.sum(ahead_cross_entropy)
    sums |= {"ahead_cross_entropy": ahead_cross_entropy, "ahead_targets": ahead_targets}  # of each layer ahead


@splice("train_step.metrics")
def _(metrics, sums):
    metrics["train/loss_ahead"] = sums["ahead_cross_entropy"].sum() / jnp.maximum(sums["ahead_targets"].sum(), 1)


@splice("test_train.added", optional=True)
def _(config):
    config = dataclasses.replace(config, ahead_weight=0.0)  # what is predicted ahead depends on targets
