"""Advantages of tokens by a critic, which values what was sampled before the policy learns from it.

Source: Schulman et al. 2015, arXiv 1506.02438, equation 16 (generalized advantage estimation); Schulman et al. 2017,
arXiv 1707.06347, section 5.
"""

from collections.abc import Callable
from typing import Annotated

import jax
import numpy as np
import optax
from jax import Array

from generator.language import requires
from generator.language.roles import Config, Decoder, PositiveInt, Request, batch_values

requires("rollouts/rollouts", "value_loss")


class RolloutConfig:
    group_size: PositiveInt = 1  # completions sampled for a prompt
    discount: Annotated[float, 0, 1] = 1.0  # of rewards, for each token until they come (gamma)
    gae_lambda: Annotated[float, 0, 1] = 0.95  # 1: advantages of all that follows; 0: of the next token's value alone
    scale_advantages: bool = True  # whether those of a rollout have a mean of 0 and a standard deviation of 1


class Critic:
    """Values what is sampled, with the weights that are trained."""

    def __init__(self, config: Config, policy: Callable[[], Decoder]):
        size = config.batch_size // config.accumulation
        accumulation = optax.microbatching.AccumulationType.CONCAT
        self.policy = policy
        self.value_batch = jax.jit(optax.microbatch(batch_values, 1, size, accumulation))

    def score(self, batch: dict[str, Array]) -> Array:
        """Returns the values [B, T] of the text before each target of a batch."""
        return self.value_batch(self.policy(), batch)


def credit_tokens(
    rewards: np.ma.MaskedArray, requests: list[Request], sums: dict[str, tuple[float, int]], config: Config
) -> list[list[float]]:
    """Returns the reward of each token: of the last one that of its completion, of the others 0.

    Those of a completion without a reward are empty. `estimate_advantages` makes advantages of them.
    """
    pairs = zip(requests, rewards.ravel().tolist(), strict=True)
    return [[] if reward is None else [0.0] * (len(request.tokens) - 1) + [reward] for request, reward in pairs]


def estimate_advantages(rewards: list[float], values: list[float], config: Config) -> list[float]:
    """Returns the advantages of tokens, from the reward of each and the value before it; nothing follows the last."""
    advantages = list[float]()
    advantage = value_after = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        error = reward + config.discount * value_after - value
        advantage = error + config.discount * config.gae_lambda * advantage
        advantages.append(advantage)
        value_after = value
    return advantages[::-1]
