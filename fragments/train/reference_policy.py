"""The policy of step 0, from which --kl-coefficient holds the trained one back."""

from collections.abc import Callable

import jax
import optax
from jax import Array
from jax.sharding import Mesh

from generator.language import requires
from generator.language.roles import Checkpoints, Config, Decoder, first_policy, target_log_likelihoods

requires("sources")


def open_reference(
    config: Config, checkpoints: Checkpoints, mesh: Mesh, policy: Callable[[], Decoder]
) -> Callable[[dict[str, Array]], Array]:
    """Returns a function to the log-likelihoods of a batch's targets [B, T] under the weights of step 0."""

    def score_rows(model: Decoder, batch: dict[str, Array]) -> Array:
        return target_log_likelihoods(model, batch, config)

    size = config.batch_size // config.accumulation
    accumulation = optax.microbatching.AccumulationType.CONCAT
    score_batch = jax.jit(optax.microbatch(score_rows, 1, size, accumulation))
    reference = first_policy(config, checkpoints, mesh, policy)
    return lambda batch: score_batch(reference(), batch)
