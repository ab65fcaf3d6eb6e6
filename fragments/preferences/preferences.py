"""Preference optimization: of two answers, the chosen one becomes likelier than the rejected one.

Source: Rafailov et al. 2023, arXiv 2305.18290 (DPO); Azar et al. 2023, arXiv 2310.12036 (IPO); Lambert et al. 2024,
arXiv 2411.15124, section 5.1.1 (length-normalized DPO); Hong et al. 2024, arXiv 2403.07691 (ORPO); Meng et al. 2024,
arXiv 2405.14734 (SimPO).
"""

import functools
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import point, requires, splice

requires("data/pairs")


class TrainConfig:
    # of dpo, dpo_norm, ipo, kto: how strongly the reference holds; orpo: weight of the odds; simpo: scale of rewards
    preference_beta: Annotated[float, 1e-6, 1e6] = 0.1
    preference_margin: Annotated[float, 0, 1e6] = 0.5  # of simpo: by how much the chosen reward is to be higher (gamma)


WITH_LABELS = "kto", "reference"  # of completions with a label; that of reference.py reads pairs as well


WITH_REFERENCE = "dpo", "dpo_norm", "ipo", "kto"


PREFERENCES = "dpo", "dpo_norm", "ipo", "orpo", "simpo"  # of pairs


def reads_reference(config: TrainConfig) -> bool:
    """Returns whether data holds the log-likelihoods of a reference."""
    with point("reads_reference", config):
        is_read = config.objective in WITH_REFERENCE
    return is_read


def sum_answers(values: Array, segment_ids: Array) -> list[Array]:
    """Sums values [B, T] over the answers of each pair [B, P]: segments 1, 3, ... are chosen, 2, 4, ... rejected."""
    number = values.shape[1] // 2 * 2 + 1  # at most, with padding
    sums = jax.vmap(functools.partial(jax.ops.segment_sum, num_segments=number))(values, segment_ids)
    return [sums[:, 1::2], sums[:, 2::2]]


def log_odds(mean: Array) -> Array:
    """Returns the log of p / (1 - p) for the log of p, which is kept below 1."""
    mean = jnp.minimum(mean, -1e-6)
    return mean - jnp.log(-jnp.expm1(mean))


def preference_loss(
    log_likelihood: Array, batch: dict[str, Array], config: TrainConfig
) -> tuple[Array, Array, dict[str, Array]]:
    """Returns the summed loss of pairs, their number, and sums of their rewards: beta times the answers' scores."""
    beta = config.preference_beta
    weights, segment_ids = batch["weights"], batch["segment_ids"]
    sizes = sum_answers(weights, segment_ids)
    is_pair = sizes[0] > 0

    def score_answers(values: Array) -> list[Array]:
        sums = sum_answers(values * weights, segment_ids)
        if config.objective == "dpo":
            return sums
        # means over tokens, as the authors of IPO confirmed for it as well
        return [x / jnp.where(is_pair, size, 1) for x, size in zip(sums, sizes, strict=True)]

    rounding = 0.0
    if config.objective in WITH_REFERENCE:
        rounding = 1e-5 * sum(score_answers(jnp.abs(batch["reference"])))  # of equal policies
        log_likelihood -= batch["reference"]
    chosen, rejected = score_answers(log_likelihood)
    margin = chosen - rejected
    if config.objective == "ipo":
        losses = (margin - 1 / (2 * beta)) ** 2
    elif config.objective == "orpo":
        losses = -chosen - beta * jax.nn.log_sigmoid(log_odds(chosen) - log_odds(rejected))
    else:
        target = config.preference_margin if config.objective == "simpo" else 0.0
        losses = -jax.nn.log_sigmoid(beta * margin - target)
    sums = {"accuracy": margin > rounding, "margin": beta * margin, "chosen_reward": beta * chosen}
    sums = {name: jnp.sum(values, where=is_pair, dtype=jnp.float32) for name, values in sums.items()}
    return jnp.sum(losses, where=is_pair), jnp.sum(is_pair, dtype=jnp.float32), sums


@splice("objectives")
def _(losses):
    losses |= dict.fromkeys(PREFERENCES, preference_loss)


@splice("abstract_batch.fields")
def _(dtypes, config):
    if reads_reference(config):
        dtypes["reference"] = "float32"
