"""KTO: completions with a label become likelier, or less likely, than completions are on average.

Source: Ethayarajh et al. 2024, arXiv 2402.01306, section 4.1.
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import requires, splice
from generator.language.roles import DESIRABLE, WITH_LABELS, NonNegativeFloat, sum_answers

requires("preferences")


class TrainConfig:
    desirable_weight: NonNegativeFloat = 1.0  # of kto: weight of the losses of rows whose label is true
    undesirable_weight: NonNegativeFloat = 1.0  # of kto: weight of those whose label is false


def kto_loss(
    log_likelihood: Array, batch: dict[str, Array], config: TrainConfig
) -> tuple[Array, Array, dict[str, Array]]:
    """Returns the summed loss of rows, their number, and sums of their margins: rewards over the KL, or below it."""
    weights, segment_ids = batch["weights"], batch["segment_ids"]
    reference = batch["reference"]
    beta = config.preference_beta
    is_row = sum_answers(weights, segment_ids)[0] > 0
    number = jnp.sum(is_row, dtype=jnp.float32)
    scores, of_others = sum_answers((log_likelihood - reference) * weights, segment_ids)
    kl = jnp.maximum(jnp.sum(of_others) / jnp.maximum(number, 1), 0)
    kl = jax.lax.stop_gradient(kl)  # of the microbatch, over all devices: the reference point of each of its rows
    is_desirable = sum_answers((batch["answers"] == DESIRABLE) * weights, segment_ids)[0] > 0
    margin = beta * jnp.where(is_desirable, scores - kl, kl - scores)
    losses = jnp.where(is_desirable, config.desirable_weight, config.undesirable_weight) * jax.nn.sigmoid(-margin)
    rounding = beta * 1e-5 * sum(sum_answers(jnp.abs(reference) * weights, segment_ids))  # of equal policies
    sums = {"accuracy": margin > rounding, "margin": margin, "kl": jnp.full_like(margin, kl)}
    sums = {name: jnp.sum(values, where=is_row, dtype=jnp.float32) for name, values in sums.items()}
    return jnp.sum(losses, where=is_row), number, sums


@splice("objectives")
def _(losses):
    losses["kto"] = kto_loss


@splice("abstract_batch.fields")
def _(dtypes, config):
    if config.objective in WITH_LABELS:
        dtypes["answers"] = "int32"
