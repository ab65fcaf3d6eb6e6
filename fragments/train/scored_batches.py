"""Log-likelihoods of the targets of a batch, for which no gradient is taken."""

import optax
from jax import Array

from generator.language import requires
from generator.language.roles import Config, Decoder, target_log_likelihoods

requires("objectives")


def batch_log_likelihoods(model: Decoder, batch: dict[str, Array], config: Config) -> Array:
    """Returns the log-likelihoods of a batch's targets [B, T], in microbatches of training's size."""
    size = config.batch_size // config.accumulation
    accumulation = optax.microbatching.AccumulationType.CONCAT
    score = optax.microbatch(lambda *rows: target_log_likelihoods(*rows, config), 1, size, accumulation)
    return score(model, batch)
