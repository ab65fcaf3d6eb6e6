"""The policy of step 0, from which --kl-coefficient holds the trained one back."""

import functools
from collections.abc import Callable

import jax
from jax import Array
from jax.sharding import Mesh

from generator.language import requires
from generator.language.roles import Checkpoints, Config, Decoder, batch_log_likelihoods, first_policy

requires("sources", "scored_batches")


def open_reference(
    config: Config, checkpoints: Checkpoints, mesh: Mesh, policy: Callable[[], Decoder]
) -> Callable[[dict[str, Array]], Array]:
    """Returns a function to the log-likelihoods of a batch's targets [B, T] under the weights of step 0."""

    score_batch = jax.jit(functools.partial(batch_log_likelihoods, config=config))
    reference = first_policy(config, checkpoints, mesh, policy)
    return lambda batch: score_batch(reference(), batch)
