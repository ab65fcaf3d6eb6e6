"""The reference of preference optimization: the model without its adapters, in place of log-likelihoods in the data."""

from generator.language import requires, splice
from generator.language.roles import WITH_REFERENCE, InputError, batch_log_likelihoods, without_adapters

requires("preferences", "without_adapters", "scored_batches")


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


@splice("are_pairs.remedy")
def _(remedy):
    remedy += ", or give --reference-without-adapters"


@splice("train_step.batch")
def _(state, batch, config):
    if config.reference_without_adapters:
        batch = batch | {"reference": batch_log_likelihoods(without_adapters(state.model), batch, config)}


@splice("eval_step.start", after="host_state")
def _(model, batch, config):
    if config.reference_without_adapters:
        batch = batch | {"reference": batch_log_likelihoods(without_adapters(model), batch, config)}
