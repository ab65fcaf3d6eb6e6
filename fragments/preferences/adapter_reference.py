"""The reference of preference optimization: the model without its adapters, in place of log-likelihoods in the data."""

import jax

from generator.language import requires, splice
from generator.language.roles import WITH_REFERENCE, InputError, target_log_likelihoods, without_adapters

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


@splice("loss.scored")
def _(model, batch, config):
    if config.reference_without_adapters:
        reference = target_log_likelihoods(without_adapters(model), batch, config)
        batch = batch | {"reference": jax.lax.stop_gradient(reference)}
