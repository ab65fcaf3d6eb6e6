"""Weights of step 0 in a run that trains adapters: the current model without them, so no second copy is held."""

from collections.abc import Callable

from jax.sharding import Mesh

from generator.language import requires
from generator.language.roles import Checkpoints, Config, Decoder, without_adapters

requires("reference_policy", "lora")


def first_policy(
    config: Config, checkpoints: Checkpoints, mesh: Mesh, policy: Callable[[], Decoder]
) -> Callable[[], Decoder]:
    """Returns a function that returns the policy of step 0: the current one, without its adapters."""

    return lambda: without_adapters(policy())
