"""Rollouts whose tokens a critic values, with the weights that are about to learn from them."""

import dataclasses

import numpy as np

from generator.language import point, requires, splice
from generator.language.roles import Config, Critic, Rollouts, Sampled, estimate_advantages

requires("rollouts/rollouts", "critic")


@splice("Sampled.fields")
def _():
    critic_values: list[float] = dataclasses.field(default_factory=list)  # of the text before each token
    returns: list[float] = dataclasses.field(default_factory=list)  # that the critic learns


def critic_scores(rollouts: Rollouts, sampled: list[Sampled]) -> list[np.ndarray]:
    """Returns the values [rows, T] before the targets of each batch of a rollout."""
    size = len(rollouts.rows)
    batches = [rollouts.batch(sampled[start : start + size]) for start in range(0, len(sampled), size)]
    return [rollouts.local_rows(rollouts.critic.score(rollouts.to_devices(batch))) for batch in batches]


def value_rollout(sampled: list[Sampled], scores: list[np.ndarray], config: Config) -> None:
    """Sets the values, advantages and returns of a rollout, whose advantages are the rewards of tokens until then.

    `scores` [rows, T] are those of `critic_scores`.
    """
    for sample, values in zip(sampled, np.concatenate(scores), strict=True):
        first = len(sample.prompt) - 1
        sample.critic_values = values[first : first + len(sample.advantages)].tolist()
        with point("Rollouts.estimated", sample, config):
            sample.advantages = estimate_advantages(sample.advantages, sample.critic_values, config)
        sample.returns = np.add(sample.advantages, sample.critic_values).tolist()
    if config.scale_advantages:
        with point("Rollouts.together", sampled):
            advantages = np.concatenate([sample.advantages for sample in sampled])
        with point("Rollouts.moments", advantages):
            mean, deviation = (advantages.mean(), advantages.std()) if advantages.size else (0.0, 1.0)
        for sample in sampled:
            sample.advantages = [(advantage - mean) / (deviation + 1e-8) for advantage in sample.advantages]


@splice("Rollouts.follow")
def _(self, policy):
    self.critic = Critic(self.config, policy)


@splice("Rollouts.begun")
def _(self, sampled):
    value_rollout(sampled, critic_scores(self, sampled), self.config)


@splice("Rollouts.batch")
def _(batch, shape):
    batch |= {name: np.zeros(shape, np.float32) for name in ("values", "returns")}


@splice("Rollouts.row")
def _(batch, row, first, end, sample):
    if sample.critic_values:  # none until the critic has valued them
        batch["values"][row, first:end] = sample.critic_values
        batch["returns"][row, first:end] = sample.returns
