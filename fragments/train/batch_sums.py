"""Balance of experts over the whole batch, where it is cut into microbatches.

Source: Qiu et al. 2025, arXiv 2501.11873.
"""

import optax
from jax import Array

from generator.marks import provide, requires
from generator.roles import Decoder, loss

requires("expert_load")


def sum_batch(model: Decoder, batch: dict[str, Array]) -> dict[str, Array] | None:
    """Load of the experts and number of targets of a batch that is cut into microbatches; None where it is not.

    The load of a microbatch would have each balanced by itself, which is another objective. With that of the batch,
    which has no gradient, the microbatches' balances add up to the batch's. It costs a forward pass without logits.
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
