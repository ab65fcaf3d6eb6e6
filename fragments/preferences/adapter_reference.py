"""The reference of preference optimization: the model without its adapters, in place of log-likelihoods in the data."""

import optax
from jax import Array

from generator.language import requires, splice
from generator.language.roles import (
    WITH_REFERENCE,
    Config,
    Decoder,
    InputError,
    target_log_likelihoods,
    without_adapters,
)

requires("preferences", "without_adapters")


class TrainConfig:
    # of dpo, dpo_norm, ipo, kto: the reference is computed at each step, without adapters, and not read from the data
    reference_without_adapters: bool = False


@splice("check_objective.terms")
def _(config):
    if config.reference_without_adapters and config.objective not in WITH_REFERENCE:
        raise InputError(f"--reference-without-adapters: --objective {config.objective} has no reference: leave it out")


@splice("reads_reference")
def _(config, is_read):
    is_read = config.objective in WITH_REFERENCE and not config.reference_without_adapters


def likelihoods_without_adapters(model: Decoder, batch: dict[str, Array], config: Config) -> Array:
    """Returns the log-likelihoods of targets [B, T], in microbatches of training's size."""
    size = config.batch_size // config.accumulation
    accumulation = optax.microbatching.AccumulationType.CONCAT
    score = optax.microbatch(lambda *rows: target_log_likelihoods(*rows, config), 1, size, accumulation)
    return score(without_adapters(model), batch)


@splice("train_step.batch")
def _(state, batch, config):
    if config.reference_without_adapters:
        batch = batch | {"reference": likelihoods_without_adapters(state.model, batch, config)}


@splice("eval_step.start", after="host_state")
def _(model, batch, config):
    if config.reference_without_adapters:
        batch = batch | {"reference": likelihoods_without_adapters(model, batch, config)}
