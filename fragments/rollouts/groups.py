"""Advantages of a completion over the others of its prompt.

Source: Shao et al. 2024, arXiv 2402.03300, section 4.1; Liu et al. 2025, arXiv 2503.20783 (unscaled advantages).
"""

import numpy as np

from generator.language import excludes, requires, splice
from generator.language.roles import Config, InputError, PositiveInt, Request, sum_and_count

requires("rollouts/rollouts")
excludes("critic")


class RolloutConfig:
    group_size: PositiveInt = 8  # completions sampled for a prompt, whose rewards are compared
    scale_advantages: bool = True  # whether a group's advantages are divided by their standard deviation


@splice("Rollouts.group")
def _(config):
    if config.group_size < 2:
        raise InputError(f"--group-size {config.group_size}: completions of a prompt are compared: give 2 or more")


def credit_tokens(
    rewards: np.ma.MaskedArray, requests: list[Request], sums: dict[str, tuple[float, int]], config: Config
) -> list[list[float]]:
    """Returns the advantage of each token: that of its completion's reward over those of its group, a row of rewards.

    Those of a completion without a reward, or the only one of its group with one, are empty.
    """
    rewards = np.ma.array(rewards, mask=np.ma.getmaskarray(rewards) | (rewards.count(axis=1) < 2)[:, None])
    spread = rewards.std(axis=1, keepdims=True)
    over = (rewards - rewards.mean(axis=1, keepdims=True)) / (spread + 1e-6 if config.scale_advantages else 1)
    sums["rollout/reward_std"] = sum_and_count(spread)
    # by their range: of equal rewards, rounding may leave a standard deviation above 0
    sums["rollout/equal_groups"] = sum_and_count(np.ma.ptp(rewards, axis=1) == 0)
    pairs = zip(requests, over.ravel().tolist(), strict=True)
    return [[] if advantage is None else [advantage] * len(request.tokens) for request, advantage in pairs]
