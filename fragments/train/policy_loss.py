"""A policy gradient on completions that the model sampled itself: GRPO, or PPO with a critic.

Source: Schulman et al. 2017, arXiv 1707.06347, equation 7; Shao et al. 2024, arXiv 2402.03300, section 4.1; Yu et al.
2025, arXiv 2503.14476, sections 3.1 and 3.3 (clip higher, mean over tokens); Zheng et al. 2025, arXiv 2507.18071 (ratio
of sequences: GSPO); for the KL term, GRPO's equation 4.
"""

from typing import Literal

import jax.numpy as jnp
from jax import Array

from generator.language import requires, setting, splice
from generator.language.roles import InputError, NonNegativeFloat, Objective, PositiveFloat

requires("rollouts", "objectives")


class TrainConfig:
    loss_per: Literal["token", "sequence"] = "token"  # what counts the same: each token, or each completion
    ratio_per: Literal["token", "sequence"] = "token"  # what has a ratio of probabilities: GSPO has sequence in both
    clip_low: PositiveFloat = 0.2  # ratios below 1 - this give no gradient where the advantage is negative
    clip_high: PositiveFloat = 0.28  # ratios above 1 + this give none where it is positive
    kl_coefficient: NonNegativeFloat = 0.0  # weight of the KL divergence to the weights of step 0; 0: not computed


def policy_loss(log_likelihood: Array, batch: dict[str, Array], config: TrainConfig) -> Objective:
    """Returns the clipped gains' negative, summed over tokens, and the sum of their weights."""
    weights, advantages = batch["weights"], batch["advantages"]  # [B, T]
    difference = log_likelihood - batch["sampled_logprobs"]
    mismatch = jnp.abs(difference)
    if config.ratio_per == "sequence":
        share = weights / jnp.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
        difference = jnp.sum(difference * share, axis=1, keepdims=True)  # [B, 1], of the geometric mean
    ratio = jnp.exp(difference)
    gain = ratio * advantages
    clipped = jnp.minimum(gain, jnp.clip(ratio, 1 - config.clip_low, 1 + config.clip_high) * advantages)
    each = {"mismatch": mismatch, "clipped": clipped < gain, "ratio": ratio, "squared_ratio": ratio**2}
    sums = {name: jnp.sum(values * weights) for name, values in each.items()}
    loss = -jnp.sum(clipped * weights)
    if config.kl_coefficient:
        lead = jnp.where(weights > 0, batch["reference"] - log_likelihood, 0)
        sums["kl"] = jnp.sum((jnp.exp(lead) - lead - 1) * weights)
        loss += config.kl_coefficient * sums["kl"]
    return loss, jnp.sum(weights), sums


@splice("check_objective.terms")
def _(config):
    if (config.ratio_per, config.loss_per) == ("sequence", "token"):
        raise InputError("--ratio-per sequence: weighs whole completions: give --loss-per sequence as well")
    if config.kl_coefficient and config.objective != setting("policy_objective"):
        problem = f"is a term of completions that the model samples, not of --objective {config.objective}: give 0"
        raise InputError(f"--kl-coefficient {config.kl_coefficient}: {problem}")


@splice("objectives")
def _(losses):
    losses[setting("policy_objective")] = policy_loss


@splice("abstract_batch.fields")
def _(dtypes, config):
    if config.objective == setting("policy_objective"):
        dtypes |= {"advantages": "float32", "sampled_logprobs": "float32"}
        if config.kl_coefficient:
            dtypes["reference"] = "float32"


@splice("train_step.metrics", after="objectives")
def _(metrics, config):
    if config.objective == setting(
        "policy_objective"
    ):  # (sum of ratios)^2 / (tokens x sum of their squares): 1 while all are the same
        squared = jnp.maximum(metrics.pop("train/squared_ratio"), 1e-30)
        metrics["train/effective_sample_share"] = metrics.pop("train/ratio") ** 2 / squared


@splice("Monitor.text")
def _(text, values):
    if "rollout/reward" in values:
        text = f"reward {values['rollout/reward']:.3f} {text}"
