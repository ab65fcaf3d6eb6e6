"""Rewards of answers, by the model of Bradley and Terry: the chosen answer of a pair has the higher one.

Source: Ouyang et al. 2022, arXiv 2203.02155, equation 1; Eisenstein et al. 2023, arXiv 2312.09244, equation 2
(centered rewards).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from generator.language import alike, proceed, requires, splice
from generator.language.roles import PREFERENCES, Decoder, NonNegativeFloat, sum_answers, token_rewards

requires("reward_head")

alike("batch_rewards", "target_log_likelihoods")


class TrainConfig:
    reward_center: NonNegativeFloat = 0.0  # of reward: weight of the squared sum of both rewards of a pair


def reward_loss(rewards: Array, batch: dict[str, Array], config: TrainConfig) -> tuple[Array, Array, dict[str, Array]]:
    """Returns the summed loss of pairs, their number, and sums of their rewards, which have a weight of 1 each."""
    weights, segment_ids = batch["weights"], batch["segment_ids"]
    chosen, rejected = sum_answers(rewards * weights, segment_ids)
    is_pair = sum_answers(weights, segment_ids)[0] > 0
    margin = chosen - rejected
    losses = config.reward_center * (chosen + rejected) ** 2 - jax.nn.log_sigmoid(margin)
    sums = {"accuracy": margin > 0, "margin": margin, "chosen_reward": chosen}
    sums = {name: jnp.sum(values, where=is_pair, dtype=jnp.float32) for name, values in sums.items()}
    return jnp.sum(losses, where=is_pair), jnp.sum(is_pair, dtype=jnp.float32), sums


def batch_rewards(model: Decoder, batch: dict[str, Array]) -> Array:
    """Returns the rewards [B, T] of what each token ends."""
    return token_rewards(model, model.hidden(batch["tokens"]))


def at_its_end(answer: np.ndarray) -> np.ndarray:
    """Returns an answer with a weight on what follows its last token, which is thus among the inputs."""
    answer = np.append(answer, answer[-1:])
    answer["weight"] = 0
    answer["weight"][-1] = 1
    return answer


@splice("objectives", after="preferences")
def _(losses):
    losses |= {"reward": reward_loss}


@splice("loss.scores")
def _(model, x, log_likelihood, log_normalizer, config):
    if config.objective == "reward":
        # of which the objective takes those at the ends of answers
        log_likelihood = log_normalizer = token_rewards(model, x)
    else:
        proceed()


@splice("are_pairs.objectives")
def _(of_pairs):
    of_pairs = *PREFERENCES, "reward"


@splice("pair_pieces.answers")
def _(config, answers):
    proceed()
    if config.objective == "reward":
        answers = [at_its_end(answer) for answer in answers]
