"""A second copy of the weights of step 0, which stay in the run's directory."""

from collections.abc import Callable

from flax import nnx
from jax.sharding import Mesh

from generator.language import excludes, requires, splice
from generator.language.roles import Checkpoints, Config, Decoder, InputError, abstract, with_matrices_in

requires("reference_policy")
excludes("lora")


def first_policy(
    config: Config, checkpoints: Checkpoints, mesh: Mesh, policy: Callable[[], Decoder]
) -> Callable[[], Decoder]:
    """Returns a function that returns the policy of step 0: a copy of its weights, in the dtype of the computation."""
    if 0 not in checkpoints.steps():
        raise InputError(
            f"--kl-coefficient {config.kl_coefficient}: "
            f"{checkpoints.directory} has no weights of step 0 to compare with: import some into a new directory"
        )
    target = {"model": abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh)}
    _, _, trees = checkpoints.restore(lambda _: target, only=0)
    model = with_matrices_in(config.dtype, trees["model"])
    return lambda: model


@splice("Checkpoints.options")
def _(options, config):
    if config.kl_coefficient and not config.keep_every:
        options.keep_period = 2**31  # which keeps step 0 alone
