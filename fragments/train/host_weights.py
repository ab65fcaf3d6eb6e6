"""Initial weights made on the CPUs of hosts, where the random numbers are those of every other target."""

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from generator.language import splice
from generator.language.roles import Config, Decoder, InputError, abstract


def host_weights(config: Config, mesh: Mesh) -> Decoder:
    """Makes all initial weights on one CPU of each host, and gives each device of the mesh its share of them."""
    try:
        cpu = jax.local_devices(backend="cpu")[:1]
    except RuntimeError:
        platforms = jax.config.jax_platforms
        raise InputError(
            f"JAX_PLATFORMS {platforms}: has no CPU, which makes the initial weights: give {platforms},cpu"
        ) from None

    def create() -> Decoder:
        return Decoder(config, nnx.Rngs(config.seed))

    with jax.set_mesh(Mesh(np.reshape(cpu, [1] * len(mesh.axis_names)), mesh.axis_names)):
        created = jax.jit(create)()

    def spread(x, of):
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, of.sharding, lambda index: x[index])

    return jax.tree.map(spread, created, abstract(create, mesh))


@splice("create_state.model")
def _(config, mesh, model):
    if model is None:
        model = host_weights(config, mesh)
