"""The objective of training: the next token's cross-entropy, or another that --objective names.

Each is a function of the targets' log-likelihoods [B, T], the batch and the config.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from generator.language import point, proceed, splice
from generator.language.roles import InputError


class TrainConfig:
    objective: str = "next_token"  # or, of a part: dpo, dpo_norm, ipo, orpo, simpo, kto, reward, distill, grpo, ppo


# the summed loss, the number of summands (tokens, pairs), sums for metrics
Objective = tuple[Array, Array, dict[str, Array]]


def next_token_loss(log_likelihood: Array, batch: dict[str, Array], _: TrainConfig) -> Objective:
    """Returns the cross-entropy of targets, and their number."""
    return -jnp.sum(log_likelihood * batch["weights"]), jnp.sum(batch["weights"]), {}


def objectives() -> dict[str, Callable]:
    losses = {"next_token": next_token_loss}
    point("objectives", losses)
    return losses


def check_objective(config: TrainConfig) -> None:
    """Raises InputError for an unknown objective, or settings of another one."""
    if config.objective not in objectives():
        raise InputError(f"--objective {config.objective}: must be one of {', '.join(objectives())}")
    point("check_objective.terms", config)


@splice("train.settings")
def _(config):
    check_objective(config)


@splice("loss.objective")
def _(log_likelihood, batch, config, cross_entropy):
    cross_entropy, summands, of_objective = objectives()[config.objective](log_likelihood, batch, config)


@splice("loss.sums")
def _(sums, cross_entropy, summands, of_objective):
    sums = {"cross_entropy": cross_entropy, "targets": summands, "objective": of_objective}


@splice("train_step.metrics")
def _(metrics, sums, targets):
    metrics |= {f"train/{name}": value / targets for name, value in sums["objective"].items()}


@splice("command_line_only.names")
def _(names):
    names.add("objective")


@splice("evaluate_held_out.mean", before="preemption")
def _(sums, step, monitor):
    proceed()
    for metric in sums[0]["objective"]:
        mean = sum(float(x["objective"][metric]) for x in sums) / sum(float(x["targets"]) for x in sums)
        monitor.log_metrics(step, {f"eval/{metric}": mean})
        print(f"step {step}: {metric} on held-out data {mean:.4f}", flush=True)


@splice("draw_losses.label", optional=True)
def _(axes):
    axes.set(xlabel="step of the optimizer", ylabel="loss of --objective")


@splice("evaluate.changed", optional=True)
def _(changed):
    changed["objective"] = "next_token"
