"""Balance of experts over the whole batch, where it is cut into microbatches.

Source: Qiu et al. 2025, arXiv 2501.11873.
"""

import optax
from jax import Array

from generator.language import provide, requires
from generator.language.roles import Decoder, loss

requires("expert_load")


def sum_batch(model: Decoder, batch: dict[str, Array]) -> dict[str, Array] | None:
    """Load of the experts and number of targets of a batch that is cut into microbatches; None where it is not.

    Balance is of the whole batch, not of each part. As the load has no gradient, the parts' losses add up to that of
    the batch if they are given its load; to know it first costs a forward pass, without logits.
    """
    config = model.config
    if config.accumulation == 1:
        return None

    def count(model: Decoder, batch: dict[str, Array]) -> dict[str, Array]:
        _, sums = loss(model, batch, config)
        return {name: sums[name] for name in ("expert_load", "targets")}

    return optax.microbatch(count, 1, config.batch_size // config.accumulation)(model, batch)


@provide("train_step")
def batch_sums(state, batch) -> dict[str, Array] | None:
    return sum_batch(state.model, batch)


@provide("loss", optional=True)
def batch_sums() -> dict[str, Array] | None:
    return None
