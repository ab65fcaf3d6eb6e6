"""Load balancing of experts over the whole batch, not each microbatch.

Source: Qiu et al. 2025, arXiv 2501.11873.
"""

import optax
from jax import Array

from generator.language import provide, requires
from generator.language.roles import Config, Decoder, loss

requires("expert_load")


def sum_batch(model: Decoder, batch: dict[str, Array], config: Config) -> dict[str, Array] | None:
    """Returns the expert load and number of targets of a batch, or None if it is a single microbatch.

    Experts are balanced over the whole batch, not each microbatch. As the load has no gradient, the losses of
    microbatches add up to the batch's if they are given its load, which costs a forward pass without logits.
    """
    if config.accumulation == 1:
        return None

    def count(model: Decoder, batch: dict[str, Array]) -> dict[str, Array]:
        _, sums = loss(model, batch, config)
        return {name: sums[name] for name in ("expert_load", "targets")}

    return optax.microbatch(count, 1, config.batch_size // config.accumulation)(model, batch)


@provide("train_step")
def batch_sums(state, batch, config) -> dict[str, Array] | None:
    return sum_batch(state.model, batch, config)


@provide("loss", optional=True)
def batch_sums() -> dict[str, Array] | None:
    return None
