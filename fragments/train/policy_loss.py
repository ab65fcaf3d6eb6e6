"""GRPO: a policy gradient on completions that the model sampled itself.

Source: Shao et al. 2024, arXiv 2402.03300, section 4.1; Yu et al. 2025, arXiv 2503.14476, sections 3.1 and 3.3 (clip
higher, mean over tokens); Zheng et al. 2025, arXiv 2507.18071 (ratio of sequences: GSPO).
"""

from typing import Literal

import jax.numpy as jnp
from jax import Array

from generator.language import proceed, requires, splice
from generator.language.roles import Config, InputError, Objective, Rollouts, checkpoint_items, with_matrices_in

requires("rollouts", "objectives")


class Config:
    loss_per: Literal["token", "sequence"] = "token"  # what counts the same: each token, or each completion
    ratio_per: Literal["token", "sequence"] = "token"  # what has a ratio of probabilities: GSPO has sequence in both
    clip_low: float = 0.2  # ratios below 1 - this give no gradient where the advantage is negative
    clip_high: float = 0.28  # ratios above 1 + this give none where it is positive


def grpo_loss(log_likelihood: Array, batch: dict[str, Array], config: Config) -> Objective:
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
    sums = {"mismatch": jnp.sum(mismatch * weights), "clipped": jnp.sum((clipped < gain) * weights)}
    return -jnp.sum(clipped * weights), jnp.sum(weights), sums


@splice("objectives")
def _(found):
    found["grpo"] = grpo_loss


@splice("abstract_batch.fields")
def _(dtypes, config):
    if config.objective == "grpo":
        dtypes |= {"advantages": "float32", "sampled_logprobs": "float32"}


@splice("train.data", after="agreement")
def _(config, batches, data, held_out):
    if config.objective == "grpo":
        data, held_out = Rollouts(config, batches["tokens"].sharding), []
    else:
        proceed()


@splice("train.before_batch")
def _(config, monitor, data, state):
    if isinstance(data, Rollouts) and not data.waiting:  # samples now
        data.policy, data.folder = with_matrices_in(config.dtype, state.model), monitor.folder


@splice("train.batch")
def _(checkpoints, step, state, data):
    try:
        proceed()
    except InputError:  # of a reward or a teacher: what is done is not lost
        if isinstance(data, Rollouts) and step not in (0, checkpoints.manager.latest_step()):
            checkpoints.save(step, checkpoint_items(state), data)
        raise


@splice("train.after_step")
def _(metrics, data):
    if isinstance(data, Rollouts):
        metrics |= data.metrics


@splice("Monitor.text")
def _(text, values):
    if "rollout/reward" in values:
        text = f"reward {values['rollout/reward']:.3f} {text}"
